//! JSON of any form, whose members stand where the configuration says.

use std::collections::BTreeMap;

use super::{Draft, Heard, Name, Pointer, Reading, Unfit};
use crate::domain::content::Channel;
use crate::domain::event::BadRequest;
use crate::domain::strict_json::Value;

/// Where things stand in a body. What is no text and no whole number counts as missing.
#[derive(Clone, Debug)]
pub struct Places {
    /// The addresses, in the order in which they are tried; those that are missing are left out, and one must be there.
    pub to: Vec<(Channel, Pointer)>,
    /// The person.
    pub user: Option<Pointer>,
    /// What names the event.
    pub naming: Naming,
    /// What happened, where the kind depends on it.
    pub kind: Option<Pointer>,
    /// When the token dies (RFC 3339), where the request says so.
    pub expires_at: Option<Pointer>,
    /// Members of `data`; those that are missing are left out.
    pub data: BTreeMap<String, Pointer>,
}

/// What names an event.
#[derive(Clone, Debug)]
pub enum Naming {
    /// The sender's own id of it, the same on every retry.
    Id(Pointer),
    /// What together tells it from every other, each of which must be there.
    Hash(Vec<Pointer>),
}

/// Reads a request.
pub(super) fn read(reading: &Reading<'_>, places: &Places) -> Result<Vec<Heard>, Unfit> {
    let action = places.kind.as_ref().map_or("", Pointer::as_str);
    let Some((kind, _)) = reading.kind(action)? else { return Ok(vec![]) };
    let address = |(channel, at): &(Channel, Pointer)| Some((*channel, reading.text(at.as_str())?));
    let to: Vec<_> = places.to.iter().filter_map(address).collect();
    if to.is_empty() {
        return Err(BadRequest::new("to", "is missing: no configured place has an address").into());
    }
    let name = match &places.naming {
        Naming::Id(at) => Name::Given(reading.need(at.as_str())?),
        Naming::Hash(all) => Name::Derived(all.iter().map(|at| reading.need(at.as_str())).collect::<Result<_, _>>()?),
    };
    let said = places.expires_at.as_ref().and_then(|at| reading.text(at.as_str()));
    let event = reading.event(Draft {
        kind,
        to,
        user: places.user.as_ref().and_then(|at| reading.text(at.as_str())),
        data: places.data.iter().filter_map(|(name, at)| Some((name.clone(), reading.text(at.as_str())?))).collect(),
        expires: said.map_or_else(|| reading.life(None), Value::Text),
        name,
    })?;
    Ok(vec![event])
}
