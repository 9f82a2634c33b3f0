//! AWS Signature Version 4, with credentials from the settings and from nowhere else.
//!
//! Source: AWS, "Signature Version 4 for API requests"
//! (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>).

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningParams, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http::HeaderName;
use minijinja::value::Value as Variables;

use super::reader::Reader;
use super::request::Ready;
use crate::document::Table;
use crate::domain::time::Timestamp;
use crate::provider::template::{DoesNotRender, Template};

/// `auth.sigv4`.
#[derive(Debug)]
pub(super) struct SigV4 {
    service: String,
    region: Template,
    access_key_id: Template,
    secret_access_key: Template,
    session_token: Template,
}

impl SigV4 {
    pub fn read(reader: &Reader, mut table: Table) -> Self {
        let service = table.need_str("service");
        let mut template = |key| {
            let text = table.need_str(key);
            reader.template(&text, &table.place_of(key))
        };
        let signer = Self {
            service,
            region: template("region"),
            access_key_id: template("access_key_id"),
            secret_access_key: template("secret_access_key"),
            session_token: template("session_token"),
        };
        table.finish();
        signer
    }

    pub fn variables(&self) -> BTreeSet<String> {
        let templates = [&self.region, &self.access_key_id, &self.secret_access_key, &self.session_token];
        templates.iter().flat_map(|t| t.variables()).collect()
    }

    /// Signs a request that is otherwise ready, with all its headers and its body.
    pub fn sign(&self, ready: &mut Ready, variables: &Variables, now: Timestamp) -> Result<(), DoesNotRender> {
        let token = Some(self.session_token.text(variables)?).filter(|token| !token.is_empty());
        let (id, secret) = (self.access_key_id.text(variables)?, self.secret_access_key.text(variables)?);
        let identity = Credentials::new(id, secret, token, None, "manifest").into();
        let region = self.region.text(variables)?;
        let micros = u64::try_from(now.micros()).map_err(|_| DoesNotRender)?;
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&region)
            .name(&self.service)
            .time(UNIX_EPOCH + Duration::from_micros(micros))
            .settings(SigningSettings::default())
            .build();
        let params = SigningParams::from(params.map_err(|_| DoesNotRender)?);
        let headers: Vec<(&str, &str)> =
            ready.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
        let body = SignableBody::Bytes(&ready.body);
        let request = SignableRequest::new(ready.method.as_str(), &ready.url, headers.into_iter(), body);
        let signed = sign(request.map_err(|_| DoesNotRender)?, &params).map_err(|_| DoesNotRender)?;
        for (name, value) in signed.into_parts().0.headers() {
            let name = HeaderName::try_from(name).map_err(|_| DoesNotRender)?;
            ready.set_secret(name, value)?;
        }
        Ok(())
    }
}
