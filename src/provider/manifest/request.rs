//! A request as a manifest describes it: method, URL, headers, authorisation, body.

use std::collections::BTreeSet;

use bytes::Bytes;
use data_encoding::BASE64;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use minijinja::value::Value as Variables;

use super::reader::Reader;
use super::sigv4::SigV4;
use crate::document::{Place, Table, Value};
use crate::domain::time::Timestamp;
use crate::domain::uri::percent_encode;
use crate::provider::template::{DoesNotRender, Template};

const BASE: &str = "{{ base_url }}";

/// How a request is authorised.
#[derive(Debug)]
enum Auth {
    Basic(Template, Template),
    Bearer(Template),
    Header(HeaderName, Template),
    SigV4(SigV4),
}

/// A member, and whether it is left out when it renders to nothing (its key ends in `?`).
#[derive(Debug)]
struct Member<T> {
    name: String,
    optional: bool,
    value: T,
}

#[derive(Debug)]
enum Json {
    Object(Vec<Member<Json>>),
    Array(Vec<Json>),
    Template(Template),
    Fixed(serde_json::Value),
}

#[derive(Debug)]
enum Body {
    None,
    Form(Vec<Member<Template>>),
    Json(Json),
}

/// A request with all its templates.
#[derive(Debug)]
pub(crate) struct RequestRule {
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, Member<Template>)>,
    auth: Option<Auth>,
    body: Body,
}

/// A request ready to leave. Secret as a whole, so it has no `Debug`.
pub(crate) struct Ready {
    pub method: Method,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl RequestRule {
    /// Reads the keys `method`, `url`, `headers`, `auth`, `form` and `json` of `table`.
    pub fn read(reader: &Reader, table: &mut Table) -> Self {
        let methods = [("POST", 0), ("PUT", 1), ("GET", 2)];
        let method = match table.need_one_of("method", &methods) {
            0 => Method::POST,
            1 => Method::PUT,
            _ => Method::GET,
        };
        let url = table.need_str("url");
        let path = url.strip_prefix(BASE).unwrap_or_else(|| {
            table.wrong("url", format!("must begin with \"{BASE}\""));
            ""
        });
        let url = reader.template(path, &table.place_of("url"));
        let headers = read_headers(reader, table);
        let auth = table.table("auth").and_then(|t| read_auth(reader, t));
        let form = table.raw("form");
        let json = table.raw("json");
        if form.is_some() && json.is_some() {
            table.wrong("form", "cannot stand beside `json`");
        }
        if method == Method::GET && (form.is_some() || json.is_some()) {
            table.wrong("method", "GET has no body");
        }
        let body = match (form, json) {
            (Some(form), _) => Body::Form(read_form(reader, form)),
            (_, Some(json)) => Body::Json(read_json(reader, json)),
            _ => Body::None,
        };
        Self { method, url, headers, auth, body }
    }

    /// Adds a header.
    pub fn add_header(&mut self, name: HeaderName, value: Template) {
        let member = Member { name: name.to_string(), optional: false, value };
        self.headers.push((name, member));
    }

    /// Every variable and setting that its templates name.
    pub fn variables(&self) -> BTreeSet<String> {
        let mut names = self.url.variables();
        names.extend(self.headers.iter().flat_map(|(_, m)| m.value.variables()));
        match &self.auth {
            Some(Auth::Basic(user, password)) => names.extend(user.variables().into_iter().chain(password.variables())),
            Some(Auth::Bearer(t) | Auth::Header(_, t)) => names.extend(t.variables()),
            Some(Auth::SigV4(signer)) => names.extend(signer.variables()),
            None => {}
        }
        match &self.body {
            Body::None => {}
            Body::Form(fields) => names.extend(fields.iter().flat_map(|m| m.value.variables())),
            Body::Json(json) => json.variables(&mut names),
        }
        names
    }

    /// Renders it; `base_url` has no slash at its end, `fallback` authorises it when it says nothing of that itself, and
    /// `now` is the time that a signature bears.
    ///
    /// # Errors
    /// [`DoesNotRender`] when a template fails or a header's value is none.
    pub fn render(
        &self,
        base_url: &str,
        variables: &Variables,
        fallback: Option<&Self>,
        now: Timestamp,
    ) -> Result<Ready, DoesNotRender> {
        self.render_for(self.url(base_url, variables)?, variables, fallback, now)
    }

    /// Its URL.
    ///
    /// # Errors
    /// [`DoesNotRender`].
    pub fn url(&self, base_url: &str, variables: &Variables) -> Result<String, DoesNotRender> {
        Ok(format!("{base_url}{}", self.url.url(variables)?))
    }

    /// The same for another URL, such as one that an answer names.
    ///
    /// # Errors
    /// As there.
    pub fn render_for(
        &self,
        url: String,
        variables: &Variables,
        fallback: Option<&Self>,
        now: Timestamp,
    ) -> Result<Ready, DoesNotRender> {
        let mut headers = HeaderMap::new();
        let body = match &self.body {
            Body::None => Bytes::new(),
            Body::Form(fields) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
                render_form(fields, variables)?.into()
            }
            Body::Json(json) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                json.render(variables)?.to_string().into()
            }
        };
        for (name, member) in &self.headers {
            let value = member.value.text(variables)?;
            if !(member.optional && value.is_empty()) {
                headers.insert(name.clone(), header_value(&value)?);
            }
        }
        let mut ready = Ready { method: self.method.clone(), url, headers, body };
        if let Some(auth) = self.auth.as_ref().or_else(|| fallback?.auth.as_ref()) {
            auth.apply(&mut ready, variables, now)?;
        }
        Ok(ready)
    }
}

impl Ready {
    /// Sets a header that is never logged.
    ///
    /// # Errors
    /// [`DoesNotRender`] when `value` is none of a header.
    pub fn set_secret(&mut self, name: HeaderName, value: &str) -> Result<(), DoesNotRender> {
        let mut value = header_value(value)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

impl Auth {
    fn apply(&self, ready: &mut Ready, variables: &Variables, now: Timestamp) -> Result<(), DoesNotRender> {
        match self {
            Self::Basic(user, password) => {
                let pair = format!("{}:{}", user.text(variables)?, password.text(variables)?);
                ready.set_secret(AUTHORIZATION, &format!("Basic {}", BASE64.encode(pair.as_bytes())))
            }
            Self::Bearer(token) => ready.set_secret(AUTHORIZATION, &format!("Bearer {}", token.text(variables)?)),
            Self::Header(name, value) => ready.set_secret(name.clone(), &value.text(variables)?),
            Self::SigV4(signer) => signer.sign(ready, variables, now),
        }
    }
}

fn header_value(text: &str) -> Result<HeaderValue, DoesNotRender> {
    HeaderValue::from_str(text).map_err(|_| DoesNotRender)
}

fn read_headers(reader: &Reader, table: &mut Table) -> Vec<(HeaderName, Member<Template>)> {
    let mut headers = vec![];
    for (key, (text, place)) in table.str_map("headers").unwrap_or_default() {
        let member = member(&key, reader.template(&text, &place));
        match HeaderName::try_from(member.name.as_str()) {
            Ok(name) => headers.push((name, member)),
            Err(_) => reader.wrong(&place, "must be the name of a header"),
        }
    }
    headers
}

fn read_auth(reader: &Reader, mut table: Table) -> Option<Auth> {
    let place = table.place().clone();
    let template = |(text, place): &(String, Place)| reader.template(text, place);
    let basic = table.strs_at("basic");
    let bearer = table.str("bearer").map(|text| reader.template(&text, &table.place_of("bearer")));
    let header = table.str_map("header");
    let sigv4 = table.table("sigv4");
    table.finish();
    match (basic, bearer, header, sigv4) {
        (Some(basic), None, None, None) => match basic.as_slice() {
            [user, password] => Some(Auth::Basic(template(user), template(password))),
            _ => reader.none(&place, "basic must be a list of user and password"),
        },
        (None, Some(token), None, None) => Some(Auth::Bearer(token)),
        (None, None, None, Some(sigv4)) => Some(Auth::SigV4(SigV4::read(reader, sigv4))),
        (None, None, Some(header), None) => match header.iter().next() {
            Some((name, value)) if header.len() == 1 => match HeaderName::try_from(name.as_str()) {
                Ok(name) => Some(Auth::Header(name, template(value))),
                Err(_) => reader.none(&value.1, "must be the name of a header"),
            },
            _ => reader.none(&place, "header must hold one header"),
        },
        _ => reader.none(&place, "must hold one of basic, bearer, header and sigv4"),
    }
}

fn member<T>(key: &str, value: T) -> Member<T> {
    let name = key.strip_suffix('?');
    Member { name: name.unwrap_or(key).to_owned(), optional: name.is_some(), value }
}

fn read_form(reader: &Reader, form: Value) -> Vec<Member<Template>> {
    let place = form.place().clone();
    let Some(mut table) = form.into_table() else {
        reader.wrong(&place, "must be a table of templates");
        return vec![];
    };
    let mut fields = vec![];
    for key in table.keys() {
        let Some(value) = table.raw(&key) else { continue };
        match value.as_str() {
            Some(text) => fields.push(member(&key, reader.template(text, value.place()))),
            None => reader.wrong(value.place(), "must be a string"),
        }
    }
    fields
}

fn read_json(reader: &Reader, value: Value) -> Json {
    if let Some(text) = value.as_str() {
        return Json::Template(reader.template(text, value.place()));
    }
    match value.to_json() {
        serde_json::Value::Object(_) => {
            let mut members = vec![];
            if let Some(mut table) = value.into_table() {
                for key in table.keys() {
                    members.extend(table.raw(&key).map(|v| member(&key, read_json(reader, v))));
                }
            }
            Json::Object(members)
        }
        serde_json::Value::Array(_) => {
            Json::Array(value.into_array().into_iter().flatten().map(|v| read_json(reader, v)).collect())
        }
        fixed => Json::Fixed(fixed),
    }
}

fn render_form(fields: &[Member<Template>], variables: &Variables) -> Result<String, DoesNotRender> {
    let mut out = String::new();
    for field in fields {
        let value = field.value.text(variables)?;
        if field.optional && value.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(&percent_encode(&field.name));
        out.push('=');
        out.push_str(&percent_encode(&value));
    }
    Ok(out)
}

impl Json {
    fn render(&self, variables: &Variables) -> Result<serde_json::Value, DoesNotRender> {
        Ok(match self {
            Self::Template(template) => template.json(variables)?,
            Self::Fixed(value) => value.clone(),
            Self::Array(items) => items.iter().map(|i| i.render(variables)).collect::<Result<_, _>>()?,
            Self::Object(members) => {
                let mut object = serde_json::Map::new();
                for member in members {
                    let value = member.value.render(variables)?;
                    if !(member.optional && is_nothing(&value)) {
                        object.insert(member.name.clone(), value);
                    }
                }
                object.into()
            }
        })
    }

    fn variables(&self, names: &mut BTreeSet<String>) {
        match self {
            Self::Template(template) => names.extend(template.variables()),
            Self::Fixed(_) => {}
            Self::Array(items) => items.iter().for_each(|i| i.variables(names)),
            Self::Object(members) => members.iter().for_each(|m| m.value.variables(names)),
        }
    }
}

fn is_nothing(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(s) => s.is_empty(),
        serde_json::Value::Array(a) => a.is_empty(),
        serde_json::Value::Object(o) => o.is_empty(),
        serde_json::Value::Null => true,
        _ => false,
    }
}
