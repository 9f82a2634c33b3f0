//! Routes and their documents, registered together so that neither can be without the other.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{
    Api, audit, batch, cancel, forms, hooks, notifications, providers, receipts, resolve, statements, unknown,
};

fn head() -> OpenApi {
    let info = InfoBuilder::new()
        .title("sendonce")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Durable dispatcher of password-reset messages. Every failure is application/problem+json (RFC 9457) whose \
             type is urn:sendonce:problem:NAME.",
        ))
        .build();
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    // The forms of parameters and of a batch's lines: only those of whole bodies are gathered from the routes.
    let components = ComponentsBuilder::new()
        .security_scheme("key", bearer)
        .schema_from::<forms::KeyHeader>()
        .schema_from::<forms::Wait>()
        .schema_from::<forms::Hook>()
        .schema_from::<batch::LineAnswer<'_>>()
        .schema_from::<forms::Format>()
        .schema_from::<forms::What>()
        .build();
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

/// All routes of the public listener but the document's own.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(head())
        .routes(routes!(notifications::post, notifications::find))
        .routes(routes!(notifications::get))
        .routes(routes!(batch::post))
        .routes(routes!(cancel::cancel))
        .routes(routes!(resolve::resolve))
        .routes(routes!(unknown::list))
        .routes(routes!(resolve::resolve_many))
        .routes(routes!(providers::list))
        .routes(routes!(statements::post))
        .routes(routes!(audit::export))
        .routes(routes!(audit::account))
        .routes(routes!(receipts::post, receipts::get))
        .routes(routes!(hooks::post))
}

/// The OpenAPI document of the public listener.
pub fn document() -> OpenApi {
    routes().into_openapi()
}

/// Serves `document` beside its routes.
pub(super) fn serve_document<S>(router: Router<S>, document: &OpenApi) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let text: Arc<str> = document.to_json().unwrap_or_default().into();
    let answer = async move || ([(CONTENT_TYPE, "application/json")], text.to_string());
    router.route("/openapi.json", get(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_somewhere(value: &serde_json::Value, document: &serde_json::Value) {
        match value {
            serde_json::Value::Object(members) => {
                if let Some(at) = members.get("$ref").and_then(|at| at.as_str()) {
                    assert!(document.pointer(at.trim_start_matches('#')).is_some(), "{at}");
                }
                members.values().for_each(|value| leads_somewhere(value, document));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|value| leads_somewhere(value, document)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_in_the_document_leads_somewhere() {
        let document = serde_json::to_value(document()).expect("serialises");
        leads_somewhere(&document, &document);
    }

    #[test]
    fn every_route_is_documented_with_its_answers() {
        let document = serde_json::to_value(document()).expect("serialises");
        let mut told = vec![];
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let answers = operation["responses"].as_object().expect("answers");
                assert!(answers.len() > 1, "{method} {path} tells of success only");
                let codes: Vec<&str> = answers.keys().map(String::as_str).collect();
                told.push(format!("{method} {path}: {}", codes.join(" ")));
            }
        }
        let expected = [
            "get /v1/audit: 200 400 401 403 503",
            "get /v1/audit/account: 200 401 403 503",
            "post /v1/hooks/{name}: 200 202 400 401 403 404 408 409 413 415 422 429 503",
            "get /v1/notifications: 200 304 400 401 403 404 429 503",
            "post /v1/notifications: 202 400 401 403 408 409 413 415 422 429 503",
            "post /v1/notifications:batch: 200 400 401 403 408 415",
            "get /v1/notifications/{id}: 200 304 400 401 403 404 429 503",
            "post /v1/notifications/{id}/cancel: 200 401 403 404 503",
            "post /v1/notifications/{id}/resolve: 200 400 401 403 404 408 409 413 415 503",
            "get /v1/providers: 200 400 401 403 503",
            "get /v1/receipts/{provider}: 200 400 401 404 503",
            "post /v1/receipts/{provider}: 200 400 401 404 408 413 503",
            "post /v1/statements: 200 400 401 403 404 408 409 413 415 422 503",
            "get /v1/unknown: 200 400 401 403 503",
            "post /v1/unknown/resolve: 200 400 401 403 408 413 415 503",
        ];
        told.sort_by_key(|line| {
            line.split_once(' ').map(|(m, rest)| (rest.split(':').next().map(str::to_owned), m.to_owned()))
        });
        assert_eq!(told, expected);
    }
}
