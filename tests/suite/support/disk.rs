//! Small file systems of a test's own, mounted in a directory of its own until dropped. That takes root.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// One of them.
pub struct Disk {
    dir: TempDir,
    /// Where it is a file.
    image: Option<TempDir>,
}

fn done(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {args:?}: this test mounts a file system: run it as root: {said}");
}

impl Disk {
    /// So many MiB of memory.
    pub fn memory(size: u32) -> Self {
        let disk = Self { dir: TempDir::new().expect("a directory"), image: None };
        done("mount", &["-t", "tmpfs", "-o", &format!("size={size}m"), "none", disk.at()]);
        disk
    }

    /// A file with an ext4 in it, which turns read-only when it meets a fault.
    pub fn image() -> Self {
        let (dir, image) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
        let file = image.path().join("image");
        fs::File::create(&file).and_then(|file| file.set_len(32 << 20)).expect("a file");
        done("mkfs.ext4", &["-q", "-F", file.to_str().expect("text")]);
        let disk = Self { dir, image: Some(image) };
        disk.mount();
        disk
    }

    fn mount(&self) {
        let file = self.image.as_ref().expect("an image").path().join("image");
        done("mount", &["-o", "loop,errors=remount-ro", file.to_str().expect("text"), self.at()]);
    }

    fn at(&self) -> &str {
        self.path().to_str().expect("text")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves not one free block.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.path().join("ballast")).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    /// Takes away what filled it.
    pub fn free(&self) {
        fs::remove_file(self.path().join("ballast")).expect("removed");
    }

    /// The kernel meets a fault in it, as ext4(5) lets one say for tests.
    pub fn fault(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
        let ours = mounts.lines().find(|line| line.split(' ').nth(1) == Some(self.at())).expect("it is mounted");
        let device = ours.split(' ').next().and_then(|device| device.strip_prefix("/dev/")).expect("a device");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").expect("a fault");
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
        let ours = mounts.lines().find(|line| line.split(' ').nth(1) == Some(self.at())).expect("it is mounted");
        assert!(ours.contains(" ro,") || ours.contains("emergency_ro"), "{ours}");
    }

    /// Repairs it, while nobody has anything open there.
    pub fn mend(&self) {
        done("umount", &[self.at()]);
        let file = self.image.as_ref().expect("an image").path().join("image");
        // 1: faults were found and corrected (e2fsck(8)).
        let code = Command::new("e2fsck").args(["-f", "-y"]).arg(file).output().expect("e2fsck").status.code();
        assert!(matches!(code, Some(0 | 1)), "{code:?}");
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
