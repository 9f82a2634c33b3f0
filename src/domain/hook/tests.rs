use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value as Json, json};

use super::*;

fn kind(name: &str) -> Kind {
    Kind::parse(name).expect("a kind")
}

fn hook(speaks: Speaks, kinds: &[(&str, &str)]) -> Hook {
    let map = kinds.iter().map(|(action, name)| ((*action).to_owned(), kind(name))).collect();
    Hook {
        name: HookName::parse("h").expect("a name"),
        tenant: Tenant::parse("shop").expect("a tenant"),
        proof: Proof::Key,
        speaks,
        kinds: if kinds.is_empty() { Kinds::One(kind("k")) } else { Kinds::By { map, ignore_others: false } },
        expires_in: 600,
        locale: Some("vi".to_owned()),
        locale_at: Some(Pointer::parse("/user/user_metadata/locale").expect("a pointer")),
        data: BTreeMap::from([("app".to_owned(), "Shop".to_owned())]),
    }
}

/// Reads bodies, with a hash that serves to tell parts from other parts.
struct Reader(Hook);

fn hash(parts: &[&[u8]]) -> KeyedHash {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hasher.finish().to_be_bytes());
    KeyedHash::from_bytes(bytes)
}

impl Reader {
    fn new(hook: Hook) -> Self {
        Self(hook)
    }

    fn read(&self, body: &Json) -> Result<Vec<Heard>, Unfit> {
        self.0.read(body.to_string().as_bytes(), &hash)
    }

    #[track_caller]
    fn one(&self, body: &Json) -> Heard {
        let mut heard = self.read(body).expect("an event");
        assert_eq!(heard.len(), 1);
        heard.remove(0)
    }

    /// The field at fault.
    #[track_caller]
    fn fault(&self, body: &Json) -> String {
        match self.read(body).expect_err("refused") {
            Unfit::Malformed(e) => e.field.unwrap_or_default(),
            Unfit::Unmapped(field) => format!("unmapped {field}"),
        }
    }
}

fn data(heard: &Heard, name: &str) -> Option<String> {
    heard.event.data.get(name).map(|value| value.to_string())
}

fn to(heard: &Heard) -> Vec<String> {
    heard.event.to.iter().map(|to| format!("{} {}", to.channel.code(), to.text.as_str())).collect()
}

fn sms() -> Json {
    json!({
        "metadata": {"uuid": "1"},
        "user": {"id": "u-1", "phone": "84901234567", "email": "", "confirmation_sent_at": "2026-11-29T12:00:00Z",
                 "user_metadata": {"locale": "en-GB"}, "is_anonymous": false},
        "sms": {"otp": "561166"},
    })
}

fn with(mut body: Json, pointer: &str, value: Json) -> Json {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent).expect("a place")[name] = value;
    body
}

#[test]
fn a_text_message_of_supabase_is_told_by_its_code_and_the_time_before_it() {
    let reader = Reader::new(hook(Speaks::SupabaseSms, &[]));
    let heard = reader.one(&sms());
    assert_eq!(to(&heard), ["sms +84901234567"]);
    assert_eq!((data(&heard, "code").as_deref(), data(&heard, "app").as_deref()), (Some("561166"), Some("Shop")));
    assert_eq!(heard.event.locale.as_deref(), Some("en-GB"));
    assert!(heard.derived && heard.key.as_str() == heard.event.event_id.as_str());
    let key = |body: Json| reader.one(&body).key;
    assert_eq!(key(with(sms(), "/metadata/uuid", json!("2"))), heard.key);
    assert_eq!(key(with(sms(), "/user/user_metadata", json!({}))), heard.key);
    for (pointer, value) in [
        ("/sms/otp", "561167"),
        ("/user/id", "u-2"),
        ("/user/phone", "84901234568"),
        ("/user/confirmation_sent_at", "2026-11-29T12:05:00Z"),
    ] {
        assert_ne!(key(with(sms(), pointer, json!(value))), heard.key, "{pointer}");
    }
}

#[test]
fn a_number_that_may_be_the_wrong_one_gets_no_code() {
    let reader = Reader::new(hook(Speaks::SupabaseSms, &[]));
    let changing = with(sms(), "/user/new_phone", json!("84907654321"));
    assert_eq!(reader.fault(&changing), "sms.phone");
    assert_eq!(to(&reader.one(&with(changing, "/sms/phone", json!("+84907654321")))), ["sms +84907654321"]);
    let same = with(sms(), "/user/new_phone", json!("84901234567"));
    assert_eq!(to(&reader.one(&same)), ["sms +84901234567"], "there is no other");
    let first = with(with(sms(), "/user/phone", json!("")), "/user/new_phone", json!("84907654321"));
    assert_eq!(to(&reader.one(&first)), ["sms +84907654321"]);
    assert_eq!(reader.fault(&with(sms(), "/user/phone", json!(""))), "sms.phone");
    assert_eq!(reader.fault(&with(sms(), "/sms/otp", Json::Null)), "sms.otp");
}

fn mail(action: &str) -> Json {
    json!({
        "user": {"id": "u-1", "email": "old@example.org", "new_email": "new@example.org"},
        "email_data": {"token": "305805", "token_hash": "7d5b", "redirect_to": "http://localhost:3000/",
            "email_action_type": action, "site_url": "http://localhost:9999", "token_new": "", "token_hash_new": ""},
    })
}

fn mailer() -> Reader {
    let link = "{site_url}/verify?token={token_hash}&type={email_action_type}";
    let link = LinkPattern::parse(link).expect("a pattern");
    Reader::new(hook(Speaks::SupabaseEmail(Some(link)), &[("recovery", "password_reset"), ("email_change", "change")]))
}

#[test]
fn a_mail_of_supabase_has_the_code_and_a_link() {
    let heard = mailer().one(&mail("recovery"));
    assert_eq!((heard.event.kind.as_str(), to(&heard)), ("password_reset", vec!["email old@example.org".to_owned()]));
    assert_eq!(data(&heard, "link").as_deref(), Some("http://localhost:9999/verify?token=7d5b&type=recovery"));
    assert_eq!((data(&heard, "code").as_deref(), heard.event.locale.as_deref()), (Some("305805"), Some("vi")));
    assert_eq!(heard.event.expiry, super::super::event::Expiry::In(600));
    let reader = Reader::new(hook(Speaks::SupabaseEmail(None), &[("recovery", "k")]));
    assert_eq!(data(&reader.one(&mail("recovery")), "link"), None);
}

#[test]
fn a_change_of_address_is_two_events_with_the_codes_that_belong_to_them() {
    let both = with(mail("email_change"), "/email_data/token_new", json!("111222"));
    let both = with(both, "/email_data/token_hash_new", json!("0ld"));
    let heard = mailer().read(&both).expect("two events");
    assert_eq!(heard.iter().flat_map(to).collect::<Vec<_>>(), ["email old@example.org", "email new@example.org"]);
    assert_eq!(
        heard.iter().map(|h| data(h, "code")).collect::<Vec<_>>(),
        [Some("305805".into()), Some("111222".into())]
    );
    assert!(data(&heard[0], "link").is_some_and(|link| link.contains("token=0ld&")));
    assert!(data(&heard[1], "link").is_some_and(|link| link.contains("token=7d5b&")));
    assert_ne!(heard[0].key, heard[1].key);
    assert!(heard[0].event.user != heard[1].event.user, "the one must not supersede the other");

    let single = mailer().one(&mail("email_change"));
    assert_eq!(
        (to(&single), data(&single, "code").as_deref()),
        (vec!["email new@example.org".to_owned()], Some("305805"))
    );
}

#[test]
fn an_action_without_a_kind_is_refused_or_ignored_as_configured() {
    assert_eq!(mailer().fault(&mail("signup")), "unmapped email_data.email_action_type");
    assert_eq!(mailer().fault(&mail("")), "email_data.email_action_type");
    let Kinds::By { map, .. } = mailer().0.kinds else { panic!("a map") };
    let ignoring = Hook { kinds: Kinds::By { map, ignore_others: true }, ..mailer().0 };
    assert!(Reader::new(ignoring).read(&mail("signup")).is_ok_and(|heard| heard.is_empty()));
}

#[test]
fn what_could_not_be_told_from_another_event_is_refused() {
    let without = |body: Json, member: &str| with(body, &format!("/email_data/{member}"), json!(""));
    assert_eq!(mailer().fault(&without(without(mail("recovery"), "token"), "token_hash")), "email_data.token");
    assert_eq!(data(&mailer().one(&without(mail("recovery"), "token_hash")), "code").as_deref(), Some("305805"));
    assert!(data(&mailer().one(&without(mail("recovery"), "token")), "link").is_some(), "one of the two is enough");
    let reader = Reader::new(hook(Speaks::Kratos, &[("recovery_code_invalid", "k")]));
    let bare = json!({"recipient": "a@example.org", "template_type": "recovery_code_invalid", "recovery_code": null});
    assert_eq!(reader.fault(&bare), "recovery_code");
}

#[test]
fn a_message_of_kratos_is_read_with_its_default_body_and_with_ours() {
    let reader =
        Reader::new(hook(Speaks::Kratos, &[("recovery_code_valid", "password_reset"), ("recovery_valid", "link")]));
    let default = json!({
        "recipient": "user@example.org", "template_type": "recovery_code_valid", "to": "user@example.org",
        "recovery_code": "493021", "recovery_url": null, "verification_url": null, "verification_code": null,
        "subject": "Recover", "body": "Hi",
    });
    let heard = reader.one(&default);
    assert_eq!(
        (to(&heard), data(&heard, "code").as_deref()),
        (vec!["email user@example.org".to_owned()], Some("493021"))
    );
    assert!(heard.event.user.is_none() && heard.event.expiry == super::super::event::Expiry::In(600));
    let ours = with(with(default.clone(), "/identity_id", json!("i-1")), "/expires_in_minutes", json!(5));
    let ours = reader.one(&ours);
    assert_eq!(ours.event.expiry, super::super::event::Expiry::In(300));
    let none = reader.one(&with(default.clone(), "/expires_in_minutes", json!(0)));
    assert_eq!(none.event.expiry, super::super::event::Expiry::In(600), "no time at all is none that was said");
    assert!(ours.event.user.as_ref().is_some_and(|user| user.as_str() == "i-1"));
    assert_eq!(reader.one(&with(default.clone(), "/subject", json!("Changed"))).key, heard.key);
    assert_ne!(reader.one(&with(default.clone(), "/recovery_code", json!("493022"))).key, heard.key);
    let sms = json!({"recipient": "+84901234567", "template_type": "recovery_valid",
                     "recovery_url": "https://id.example/r?token=x", "verification_code": null});
    let sms = reader.one(&sms);
    assert_eq!((to(&sms), data(&sms, "code")), (vec!["sms +84901234567".to_owned()], None));
    assert_eq!(data(&sms, "link").as_deref(), Some("https://id.example/r?token=x"));
    assert_eq!(reader.fault(&with(default, "/template_type", json!("login_code_valid"))), "unmapped template_type");
}

fn places(naming: Naming) -> Speaks {
    let at = |text| Pointer::parse(text).expect("a pointer");
    Speaks::Generic(Box::new(Places {
        to: vec![(Channel::Sms, at("/who/phone")), (Channel::Email, at("/who/mail"))],
        user: Some(at("/who/id")),
        naming,
        kind: Some(at("/type")),
        expires_at: Some(at("/until")),
        data: BTreeMap::from([("code".to_owned(), at("/secret/0"))]),
    }))
}

#[test]
fn json_of_any_form_is_read_where_the_configuration_says() {
    let at = |text| Pointer::parse(text).expect("a pointer");
    let body = json!({
        "id": "job-7", "type": "reset", "until": "2026-11-29T13:00:00Z", "secret": [493021],
        "who": {"id": 1841, "mail": "user@example.org", "phone": null},
    });
    let given = Reader::new(hook(places(Naming::Id(at("/id"))), &[("reset", "password_reset")]));
    let heard = given.one(&body);
    assert_eq!(
        (heard.event.event_id.as_str(), heard.derived, to(&heard)),
        ("job-7", false, vec!["email user@example.org".to_owned()])
    );
    assert_eq!(
        (data(&heard, "code").as_deref(), heard.event.user.as_ref().map(|u| u.as_str())),
        (Some("493021"), Some("1841"))
    );
    assert!(!heard.key.as_str().contains("job-7"));
    assert_eq!(given.fault(&with(body.clone(), "/id", json!("job-493021"))), "event_id", "it holds the code");
    assert_eq!(given.fault(&with(body.clone(), "/id", json!("a b"))), "event_id");
    assert_eq!(given.fault(&with(body.clone(), "/until", json!("soon"))), "expires_at");
    assert_eq!(given.fault(&with(body.clone(), "/who/mail", Json::Null)), "to");

    let hashed = Reader::new(hook(places(Naming::Hash(vec![at("/who/id"), at("/secret/0")])), &[("reset", "k")]));
    assert_eq!(hashed.one(&body).key, hashed.one(&with(body.clone(), "/id", json!("job-8"))).key);
    assert_eq!(hashed.fault(&with(body, "/who/id", Json::Null)), "who.id");
}

#[test]
fn the_hooks_of_supabase_are_told_from_others() {
    let speaks = [Speaks::SupabaseSms, Speaks::SupabaseEmail(None), Speaks::Kratos, places(Naming::Hash(vec![]))];
    assert_eq!(speaks.map(|speaks| speaks.is_supabase()), [true, true, false, false]);
}

#[test]
fn a_pointer_is_one_of_rfc_6901() {
    for good in ["/a", "/a/0/b~1c", "/~0", "/"] {
        assert!(Pointer::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "a", "/a~", "/a~2"] {
        assert!(Pointer::parse(bad).is_err(), "{bad}");
    }
}
