//! Who asks: a bearer key names a tenant and roles.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::Api;
use super::problem::{Code, Problem};
use crate::domain::audit::Actor;
use crate::domain::ids::Tenant;
pub use crate::domain::role::Role;

/// A set of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// These roles and `role`.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// `role` is one of them.
    pub const fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        roles.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Who asks: the holder of a key, or an identity system through its hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// As the log names them.
    pub actor: Actor,
    /// Whose rows they see.
    pub tenant: Tenant,
    /// What they may do.
    pub roles: Roles,
}

impl Principal {
    /// Refuses a holder without any of `roles`.
    ///
    /// # Errors
    /// 403 `role-missing`.
    pub fn require(&self, roles: &[Role]) -> Result<(), Problem> {
        if roles.iter().any(|&role| self.roles.has(role)) {
            return Ok(());
        }
        let names: Vec<&str> = roles.iter().map(|role| role.code()).collect();
        Err(Problem::new(Code::RoleMissing, format!("this key has none of the roles: {}", names.join(", "))))
    }
}

/// Knows keys. Implementations compare in constant time and never log the text.
pub trait Authenticate: Send + Sync {
    /// The holder of this bearer key; `None` for a key that is unknown, revoked or over.
    fn principal(&self, bearer: &str) -> Option<Principal>;
}

/// The text after `Bearer` (RFC 6750 section 2.1; the scheme's case is free, RFC 9110 section 11.1). Two headers are none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim()).filter(|key| !key.is_empty())
}

/// The holder of the key in these headers.
pub(super) fn principal(api: &Api, headers: &HeaderMap) -> Option<Principal> {
    bearer(headers).and_then(|key| api.authenticate.principal(key))
}

impl FromRequestParts<Arc<Api>> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        principal(api, &parts.headers).ok_or_else(|| Problem::new(Code::Unauthorized, "a valid bearer key is needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bearer_header_counts() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a header value"));
            }
            headers
        };
        assert_eq!(bearer(&headers(&["Bearer abc"])), Some("abc"));
        assert_eq!(bearer(&headers(&["bearer abc"])), Some("abc"));
        for none in [&[][..], &["Bearer "], &["Basic abc"], &["Bearer abc", "Bearer abc"], &["abc"]] {
            assert_eq!(bearer(&headers(none)), None, "{none:?}");
        }
    }

    #[test]
    fn roles_are_a_set() {
        let roles: Roles = [Role::Sender, Role::Auditor].into_iter().collect();
        assert!(roles.has(Role::Sender) && roles.has(Role::Auditor) && !roles.has(Role::Operator));
        assert!(Role::ALL.iter().all(|&role| !Roles::NONE.has(role)));
    }
}
