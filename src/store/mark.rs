//! stub until the store lands
use super::rows::HighWater;
/// stub
pub struct Mark;
impl Mark {
    /// stub
    pub fn read(&self) -> Option<HighWater> {
        None
    }
    /// stub
    #[expect(clippy::missing_errors_doc)]
    pub fn write(&mut self, _: &HighWater) -> std::io::Result<()> {
        Ok(())
    }
    /// stub
    #[expect(clippy::missing_errors_doc)]
    pub fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
