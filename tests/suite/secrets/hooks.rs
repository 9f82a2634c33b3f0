//! What other systems send to hooks, right and wrong.

use super::*;
use crate::callers::{Headers, call, header, signed};

pub const WEBHOOK_FILE: &str = "webhook.secret";
pub const PASSWORD_FILE: &str = "hook.password";
pub const WEBHOOK_KEY: &str = "CANARYwebhookkey0123456789";
pub const PASSWORD: &str = "CANARYhookpassword";

pub const PLAN: &str = "[hook.phone]\nspeaks = \"supabase-sms\"\ntenant = \"shop\"\nsecret_file = \"webhook.secret\"\n\
    kind = \"password_reset\"\nexpires_in = \"10m\"\n\
    [hook.mail]\nspeaks = \"supabase-email\"\ntenant = \"shop\"\nsecret_file = \"webhook.secret\"\n\
    kinds = { recovery = \"password_reset\" }\nexpires_in = \"10m\"\nlink = \"https://id.example/?t={token_hash}\"\n\
    [hook.kratos]\nspeaks = \"kratos\"\ntenant = \"shop\"\nauth = \"basic\"\nuser = \"kratos\"\n\
    secret_file = \"hook.password\"\nkinds = { recovery_code_valid = \"password_reset\" }\nexpires_in = \"10m\"\n";

/// The key as Supabase shows it.
pub fn webhook_secret() -> String {
    format!("v1,whsec_{}", BASE64.encode(WEBHOOK_KEY.as_bytes()))
}

/// Calls every hook, and gives the notifications that came of it.
pub async fn calls(daemon: &Daemon, said: &mut Said) -> Vec<String> {
    let basic = |password: &str| -> Headers {
        vec![header("authorization", format!("Basic {}", BASE64.encode(format!("kratos:{password}").as_bytes())))]
    };
    let kratos = |recipient: &str, template: &str| {
        json!({ "recipient": recipient, "template_type": template, "recovery_code": CODE,
                "identity_id": format!("{USER} at Kratos") })
        .to_string()
    };
    let sms = |phone: &str| {
        json!({ "user": { "id": USER, "phone": phone, "secret": STRAY }, "sms": { "otp": CODE } }).to_string()
    };
    let mail = |action: &str| {
        json!({ "user": { "id": USER, "email": format!("{PERSON}@@customer.example") },
                "email_data": { "email_action_type": action, "token": CODE, "token_hash": LINK_TOKEN, "site_url": STRAY } })
        .to_string()
    };
    let sign = |body: &str| signed(&webhook_secret(), "id", 0, body);
    let mut ids = vec![];
    for (hook, status, headers, body) in [
        ("kratos", 202, basic(PASSWORD), kratos(NUMBERS[0].2, "recovery_code_valid")),
        ("kratos", 422, basic(PASSWORD), kratos(STRAY, "recovery_code_valid")),
        ("kratos", 422, basic(PASSWORD), kratos(NUMBERS[0].2, STRAY)),
        ("kratos", 400, basic(PASSWORD), format!("{{\"code\": {CODE}}}")),
        ("kratos", 401, basic(STRAY), kratos(NUMBERS[0].2, "recovery_code_valid")),
        ("phone", 200, sign(&sms(STRAY)), sms(STRAY)),
        ("phone", 200, sign(CODE), CODE.to_owned()),
        ("phone", 401, sign(STRAY), sms(NUMBERS[0].2)),
        ("mail", 200, sign(&mail("recovery")), mail("recovery")),
        ("mail", 200, sign(&mail(STRAY)), mail(STRAY)),
        (STRAY, 404, vec![], CODE.to_owned()),
    ] {
        let answer = call(daemon, hook, &headers, &body).await;
        ids.extend((status == 202).then(|| answer.id()));
        said.answered(&format!("a hook, {status}"), status, &answer);
    }
    let lines =
        format!("{{\"idempotency_key\":\"{CODE}\",\"{STRAY}\":1}}\n{CODE}\n{}\n", json!({ "data": { "code": CODE } }));
    let batch = [("content-type", "application/x-ndjson")];
    said.answered("a batch", 200, &daemon.ask(Method::POST, "/v1/notifications:batch", &batch, lines).await);
    ids
}
