//! Where a hook's request comes from.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};

use crate::domain::audit::Actor;
use crate::domain::hook::{Encoding, Hook, Proof};
use crate::http::Api;
use crate::http::auth::{self, Principal, Role, Roles};
use crate::http::problem::{Code, Problem};
use crate::provider::signature::{self, keyed, one_header};

/// Who sends, once that is proven.
///
/// # Errors
/// 401; 403 for an API key that may not send.
pub(super) fn prove(api: &Api, hook: &Hook, headers: &HeaderMap, body: &[u8]) -> Result<Principal, Problem> {
    let unproven = || Problem::new(Code::Unauthorized, "the request's origin is not proven");
    if matches!(hook.proof, Proof::Key) {
        let principal = auth::principal(api, headers).filter(|principal| principal.tenant == hook.tenant);
        let principal = principal.ok_or_else(unproven)?;
        principal.require(&[Role::Sender])?;
        return Ok(principal);
    }
    let proven = is_proven(api, &hook.proof, headers, body).unwrap_or(false);
    let principal = Principal {
        actor: Actor::Hook(hook.name.clone()),
        tenant: hook.tenant.clone(),
        roles: Roles::NONE.with(Role::Sender),
    };
    proven.then_some(principal).ok_or_else(unproven)
}

/// `None` when a header is missing or does not read.
fn is_proven(api: &Api, proof: &Proof, headers: &HeaderMap, body: &[u8]) -> Option<bool> {
    Some(match proof {
        Proof::Key => false,
        Proof::Basic { user, secrets } => {
            signature::verify_basic(user, &open(secrets), one_header(headers, AUTHORIZATION.as_str())?)
        }
        Proof::Header { header, secrets } => signature::verify_secret(&open(secrets), one_header(headers, header)?),
        Proof::Hmac { header, prefix, encoding, secrets } => {
            let given = one_header(headers, header)?.strip_prefix(prefix.as_str())?.as_bytes();
            let given = match encoding {
                Encoding::Hex => HEXLOWER_PERMISSIVE.decode(given),
                Encoding::Base64 => BASE64.decode(given),
            };
            keyed::verify_body(&open(secrets), body, &given.ok()?)
        }
        Proof::StandardWebhooks { secrets } => {
            signature::verify_standard_headers(&open(secrets), headers, body, api.clock.now())
        }
    })
}

fn open(secrets: &[SecretString]) -> Vec<&str> {
    secrets.iter().map(SecretString::expose_secret).collect()
}
