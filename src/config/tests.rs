use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;

const CANARY: &str = "CANARY-7f3a";
const VARIABLES: &str = "[vault]\nsealing_keys_env = \"SEAL\"\nindex_key_env = \"INDEX\"\n";

fn environment() -> Environment {
    let variables = [("SEAL", "k1 AAAA"), ("INDEX", "i1 AAAA"), ("TOKEN", CANARY)];
    Environment::new(variables.map(|(k, v)| (k.to_owned(), v.to_owned())), None)
}

/// A configuration without mistakes, with `more` at its end.
fn with(more: &str) -> String {
    format!(
        "[store]\nurl = \"sqlite:s.db\"\n{VARIABLES}[keys]\nfile = \"keys.toml\"\n[routes]\nsms = [\"a\"]\n\
         [provider.a]\nkind = \"sandbox\"\nchannel = \"sms\"\noutbox = \"o\"\n[[tenant]]\nname = \"shop\"\n{more}"
    )
}

fn mistakes_in(text: &str, base: &Path) -> Vec<String> {
    let told = Settings::parse("c.toml", text, base, &environment()).err().unwrap_or_default();
    told.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_told(more: &str, wanted: &str) {
    let told = mistakes_in(&with(more), Path::new(""));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with(wanted), "{told:?} should end with {wanted:?}");
    assert!(!told[0].contains(CANARY), "{told:?}");
}

#[test]
fn each_mistake_is_named_with_what_is_wanted() {
    let cases = [
        (
            "[server]\nlisten = \"CANARY-7f3a\"",
            "c.toml:17:1: server.listen: must be an IP address and a port, such as \"127.0.0.1:8025\", or \"systemd\"",
        ),
        ("[server]\nlisten = \"0.0.0.0:0\"", "server.listen: needs a port other than 0"),
        ("[server]\nlisten = \"127.0.0.1:8026\"", "server.admin_listen: must not be the same as `listen`"),
        ("[server]\nlistne = \"127.0.0.1:80\"", "server.listne: is not a known key; did you mean `listen`?"),
        ("[server]\nrequest_timeout = \"2s\"", "server.request_timeout: must not be shorter than `header_timeout`"),
        ("[server]\nbody_limit = 5", "server.body_limit: must be an integer from 1024 to 1048576"),
        (
            "[server]\npublic_url = \"http://x.example\"",
            "server.public_url: must begin with https:// (http:// is only for this machine itself)",
        ),
        (
            "[server]\npublic_url = \"https://u:CANARY-7f3a@x.example\"",
            "server.public_url: must not hold a user or password",
        ),
        ("[dispatch]\nstart_by = \"2m\"", "dispatch.start_by: must be a duration from 1s to 1m, such as \"10s\""),
        (
            "[dispatch]\nretry = { first = \"9s\", cap = \"3s\" }",
            "dispatch.retry.cap: must not be shorter than `first`",
        ),
        ("[dispatch]\nretry.factor = 0.5", "dispatch.retry.factor: must be a number from 1 to 10"),
        ("[retention]\nkeys = \"29d\"", "retention.keys: must be a duration from 30d to 3650d, such as \"10s\""),
        ("[admission]\nqueue = 8", "admission.queue: must not be less than `batch`"),
        ("[log]\nformat = \"CANARY-7f3a\"", "log.format: must be one of \"json\", \"pretty\""),
        ("[templates]\ndir = \"/nowhere-at-all\"", "templates.dir: is not a directory that can be read"),
        ("[[tenant]]\nname = \"shop\"", "tenant[1].name: is the name of another tenant too"),
        ("[[tenant]]\nname = \"Shop\"", "tenant[1].name: has a character outside a-z 0-9 _ -"),
        (
            "[[tenant]]\nname = \"b\"\ncountries = [\"VN\", \"vn\"]",
            "c.toml:18:20: tenant[1].countries[1]: must be two capital letters, such as \"VN\" (ISO 3166-1 alpha-2)",
        ),
        ("[[tenant]]\nname = \"b\"\ntenant_limit = { burst = 5 }", "tenant[1].tenant_limit.per: is required"),
        (
            "[[routes.rule]]\ncountries = [\"VN\"]\nsms = [\"b\"]",
            "routes.rule[0].sms[0]: names a provider that has no [provider.NAME] section",
        ),
        (
            "[[routes.rule]]\ncountries = [\"VN\"]\nsms = [\"a\", { provider = \"a\", weight = 1 }]",
            "c.toml:18:15: routes.rule[0].sms[1].provider: names a provider a second time",
        ),
        (
            "[[routes.rule]]\nkinds = [\"login\"]\nsms = [{ provider = \"a\", weight = 0 }]",
            "routes.rule[0].sms[0].weight: must be an integer from 1 to 1000",
        ),
        (
            "[[routes.rule]]\nkinds = [\"login\"]\nsms = [7]",
            "routes.rule[0].sms[0]: must be a provider's name, or such as { provider = \"NAME\", weight = 3 }",
        ),
        (
            "[[routes.rule]]\nsms = [\"a\"]",
            "routes.rule[0].kinds: `kinds` or `countries` must say which messages the rule is for",
        ),
        ("[[routes.rule]]\nkinds = [\"login\"]", "routes.rule[0].sms: `sms` or `email` is required"),
        (
            "[[routes.rule]]\ncountries = [\"VN\"]\nemail = []",
            "routes.rule[0].email: cannot be told apart by `countries`, which only phone numbers have",
        ),
        (
            "[[routes.rule]]\ncountries = [\"VN\", \"TH\"]\nsms = []\n[[routes.rule]]\ncountries = [\"TH\"]\nsms = [\"a\"]",
            "routes.rule[1].sms: is a second route for the same messages",
        ),
        (
            "[[routes.rule]]\ncountries = [\"VN\"]\nsms = []\n[[routes.rule]]\nkinds = [\"login\"]\nsms = [\"a\"]",
            "c.toml:18:1: routes.rule[0].sms: a message of the kind `login` to VN has a rule by its kind and this one by its \
             country, and neither is more specific; add one for both",
        ),
        ("[provider.b]\nconcurrency = 3", "provider.b.kind: is required: \"http\", \"smtp\", \"smpp\" or \"sandbox\""),
        (
            "[hook.h]\ntenant = \"shop\"",
            "hook.h.speaks: is required: \"supabase-sms\", \"supabase-email\", \"kratos\" or \"generic\"",
        ),
        (
            "[hook.H]\nspeaks = \"kratos\"\ntenant = \"shop\"\nkind = \"k\"\nexpires_in = \"1h\"",
            "hook.H: the name has a character outside a-z 0-9 _ -",
        ),
        (
            "[hook.h]\nspeaks = \"kratos\"\ntenant = \"ghost\"\nkind = \"k\"\nexpires_in = \"1h\"",
            "hook.h.tenant: names a tenant that has no [[tenant]] section",
        ),
        (
            "[hook.h]\nspeaks = \"kratos\"\ntenant = \"shop\"\nauth = \"hmac\"\nkind = \"k\"\nexpires_in = \"1h\"",
            "hook.h.auth: must be one of \"key\", \"basic\", \"header\"",
        ),
        (
            "[hook.h]\nspeaks = \"supabase-sms\"\ntenant = \"shop\"\nkind = \"k\"\nexpires_in = \"1h\"\nsecret = \"CANARY-7f3a\"",
            "hook.h.secret: is a secret and must not stand in this file; give `secret_file`, `secret_env` or `secret_credential` instead",
        ),
        (
            "[hook.h]\nspeaks = \"supabase-sms\"\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nkinds = { a = \"k\" }\nexpires_in = \"1h\"",
            "hook.h.kinds: is not for supabase-sms, whose requests name no action; give `kind`",
        ),
        (
            "[hook.h]\nspeaks = \"supabase-email\"\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nkinds = { recover = \"k\" }\nexpires_in = \"1h\"",
            "hook.h.kinds.recover: is not one of the actions signup, invite, magiclink, recovery, email_change, email, reauthentication",
        ),
        (
            "[hook.h]\nspeaks = \"supabase-email\"\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nkind = \"k\"\nexpires_in = \"1h\"\nlink = \"https://x.example/\"",
            "hook.h.link: must have {token_hash}",
        ),
        (
            "[hook.h]\nspeaks = \"generic\"\ntenant = \"shop\"\nauth = \"key\"\nkind = \"k\"\nexpires_in = \"1h\"\nat = { to = [{ sms = \"p\" }], event_id = \"/id\" }",
            "hook.h.at.to[0].sms: must be a JSON pointer, such as \"/user/id\"",
        ),
        (
            "[hook.h]\nspeaks = \"generic\"\ntenant = \"shop\"\nauth = \"key\"\nkind = \"k\"\nexpires_in = \"1h\"\nat = { to = [{ sms = \"/p\" }] }",
            "hook.h.at.event_id: one of `event_id` and `identity` is required",
        ),
        ("[provider.b]\nkind = \"http\"", "provider.b.manifest: one of `manifest` and `manifest_file` is required"),
        (
            "[provider.b]\nkind = \"http\"\nmanifest = \"x\"\nconnect_timeout = \"30s\"",
            "provider.b.timeout: must be longer than `connect_timeout`",
        ),
        (
            "[provider.b]\nkind = \"http\"\nmanifest = \"x\"\nsettings.base_url = \"http://CANARY-7f3a.example\"",
            "provider.b.settings.base_url: must begin with https:// (http:// is only for this machine itself)",
        ),
        (
            "[provider.b]\nkind = \"http\"\nmanifest = \"x\"\nsettings.auth_token_env = \"UNSET\"",
            "provider.b.settings.auth_token_env: the environment variable that is named here is not set",
        ),
        (
            "[provider.b]\nkind = \"http\"\nmanifest = \"x\"\nsettings.auth_token_credential = \"t\"",
            "provider.b.settings.auth_token_credential: $CREDENTIALS_DIRECTORY is not set; a credential needs systemd's LoadCredential=",
        ),
        (
            "[provider.b]\nkind = \"smtp\"\nhost = \"m.example\"\nfrom = \"a@b.example\"\nusername = \"u\"\npassword = \"CANARY-7f3a\"",
            "provider.b.password: is a secret and must not stand in this file; give `password_file`, `password_env` or `password_credential` instead",
        ),
        (
            "[provider.b]\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nfrom = \"a@b.example\"\ntls = \"none\"\nusername = \"u\"\npassword_env = \"TOKEN\"",
            "provider.b.tls: must not be \"none\" where a password is sent",
        ),
        (
            "[provider.b]\nkind = \"smtp\"\nhost = \"m.example\"\nfrom = \"a@b.example\"\ntls = \"none\"",
            "provider.b.tls: \"none\" is only for a relay on this machine itself",
        ),
        (
            "[provider.b]\nkind = \"smtp\"\nhost = \"m.example\"\nfrom = \"a@b.example\"\npassword_env = \"TOKEN\"",
            "provider.b.password: needs a `username`",
        ),
        (
            "[provider.b]\nkind = \"smpp\"\nhost = \"m.example\"\nsystem_id = \"u\"\nsource = \"Shop\"",
            "provider.b.password: is required, as `password_file`, `password_env` or `password_credential`",
        ),
        (
            "[provider.b]\nkind = \"smpp\"\nhost = \"m.example\"\nsystem_id = \"u\"\nsource = \"Shop\"\npassword = \"CANARY-7f3a\"",
            "provider.b.password: is a secret and must not stand in this file; give `password_file`, `password_env` or `password_credential` instead",
        ),
        (
            "[provider.b]\nkind = \"smpp\"\nhost = \"m.example\"\nsystem_id = \"u\"\nsource = \"Shop\"\npassword_env = \"TOKEN\"\nwindow = 0",
            "provider.b.window: must be an integer from 1 to 1000",
        ),
        (
            "[callback.x]\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nurl = \"http://CANARY-7f3a.example\"",
            "callback.x.url: must begin with https:// (http:// is only for this machine itself)",
        ),
        (
            "[callback.x]\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nurl = \"https://localhost/CANARY-7f3a\"",
            "callback.x.url: leads to this machine; `allow_private = true` allows that",
        ),
        (
            "[callback.x]\ntenant = \"b\"\nsecret_env = \"TOKEN\"\nurl = \"https://x.example/CANARY-7f3a\"",
            "callback.x.tenant: names a tenant that has no [[tenant]]",
        ),
        (
            "[callback.x]\nsecret_env = \"TOKEN\"\nurl = \"https://x.example\"\nconcurrency = 2",
            "callback.x.tenant: is required",
        ),
        (
            "[callback.x]\ntenant = \"shop\"\nurl = \"https://x.example\"\nsecret = \"CANARY-7f3a\"",
            "callback.x.secret: is a secret and must not stand in this file; give `secret_file`, `secret_env` or \
             `secret_credential` instead",
        ),
        (
            "[callback.x]\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nurl = \"https://x.example\"\nevents = []",
            "callback.x.events: must not be empty; leave it out for all",
        ),
        (
            "[callback.X]\ntenant = \"shop\"\nsecret_env = \"TOKEN\"\nurl = \"https://x.example\"",
            "callback.X: the name has a character outside a-z 0-9 _ -",
        ),
    ];
    for (more, wanted) in cases {
        assert_told(more, wanted);
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = "[store]\nurl = \"postgres://u:CANARY-7f3a@db/x\"\n[vault]\nsealing_keys = \"CANARY-7f3a\"\n\
                [routes]\nsms = [\"ghost\"]\n[surprise]\n";
    assert_eq!(
        mistakes_in(text, Path::new("")),
        [
            "c.toml:1:1: keys.file: is required",
            "c.toml:1:1: tenant: at least one [[tenant]] is required",
            "c.toml:1:2: store.mark_file: is required with PostgreSQL: a file of this node, kept apart from the backups",
            "c.toml:2:1: store.url: holds a password, which must not stand in this file; give `password_file`, \
             `password_env` or `password_credential`, or the whole URL as `url_file`, `url_env` or `url_credential`",
            "c.toml:3:2: vault.index_key: is required, as `index_key_file`, `index_key_env` or `index_key_credential`",
            "c.toml:4:1: vault.sealing_keys: is a secret and must not stand in this file; give `sealing_keys_file`, \
             `sealing_keys_env` or `sealing_keys_credential` instead",
            "c.toml:6:8: routes.sms[0]: names a provider that has no [provider.NAME] section",
            "c.toml:7:2: surprise: is not a known key",
        ]
    );
}

#[test]
fn what_is_not_said_takes_its_default() {
    let settings = Settings::parse("c.toml", &with(""), Path::new("/etc/sendonce"), &environment()).expect("valid");
    assert!(matches!(&settings.store.place, StorePlace::Sqlite(path) if path == Path::new("/etc/sendonce/s.db")));
    assert_eq!(settings.store.mark_file, Path::new("/etc/sendonce/s.db.mark"));
    assert_eq!(settings.server.listen, Listen::loopback(8025));
    assert_eq!(settings.dispatch.max_attempts, 5);
    let routed: Vec<_> = settings.routes.routes().flat_map(|(_, route)| route.providers()).collect();
    assert_eq!(routed, [&settings.providers[0].name]);
    assert_eq!(settings.vault.sealing_keys.expose_secret(), "k1 AAAA");
}

#[test]
fn the_example_reads_and_names_every_section() {
    let dir = TempDir::new().expect("a directory");
    let text = include_str!("../../config/example.toml");
    for name in text.lines().filter_map(|l| l.split_once("_credential = \"")?.1.strip_suffix('"')) {
        write_secret(dir.path(), name, "secret\n", 0o440);
    }
    let env = environment().with_credentials(dir.path().to_owned());
    fs::create_dir(dir.path().join("templates")).expect("a directory");
    for name in ["relay-ca.pem", "smsc-ca.pem"] {
        fs::write(dir.path().join(name), "").expect("a file");
    }
    let settings = Settings::parse("example.toml", text, dir.path(), &env).map_err(|m| format!("{m:#?}"));
    assert_eq!(settings.as_ref().map(|s| (s.providers.len(), s.hooks.len())), Ok((5, 4)));

    let spoken: String = text.lines().filter(|l| !l.starts_with("#manifest_file")).fold(String::new(), |all, line| {
        let is_key = line.strip_prefix('#').is_some_and(|l| l.starts_with(|c: char| c.is_ascii_lowercase()));
        all + if is_key { &line[1..] } else { line } + "\n"
    });
    let spoken = Settings::parse("example.toml", &spoken, dir.path(), &env).map_err(|m| format!("{m:#?}"));
    let defaults = |s: Result<Settings, String>| {
        s.map(|s| {
            let callbacks = s.callbacks.iter().map(|c| {
                (&c.events, c.concurrency, c.timeout, c.retry, c.give_up_after, c.allow_private, c.secrets.len())
            });
            let more = format!("{:?} {:?} {:?}", s.admission, s.log, callbacks.collect::<Vec<_>>());
            format!("{:?} {:?} {:?} {:?} {more}", s.server, s.store, s.dispatch, s.retention)
        })
    };
    assert_eq!(defaults(spoken), defaults(settings), "what is commented out is not the default");
}

#[test]
fn the_settings_for_trying_out_lead_nowhere_outside() {
    let settings = Settings::dev(Path::new("/tmp/x")).expect("constant names");
    assert!(settings.providers.iter().all(|p| matches!(p.kind, Kind::Sandbox(_))));
    assert_eq!(
        (settings.server.listen, settings.server.admin_listen),
        (Listen::loopback(8025), Listen::loopback(8026))
    );
}

fn write_secret(dir: &Path, name: &str, text: &str, mode: u32) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
}

const SMTP: &str = "[provider.b]\nkind = \"smtp\"\nhost = \"m.example\"\nfrom = \"a@b.example\"\nusername = \"u\"\n";

fn password(dir: &Path, line: &str, env: &Environment) -> Result<String, Vec<String>> {
    let settings = Settings::parse("c.toml", &with(&format!("{SMTP}{line}\n")), dir, env)
        .map_err(|m| m.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    match &settings.providers[1].kind {
        Kind::Smtp(smtp) => Ok(smtp.password.as_ref().expect("a password").expose_secret().to_owned()),
        other => panic!("{other:?} is not SMTP"),
    }
}

#[test]
fn a_secret_file_gives_every_octet_but_one_final_line_end() {
    let dir = TempDir::new().expect("a directory");
    let secret = "p@ss:w/rd%25+ é";
    for (end, kept) in [("", ""), ("\n", ""), ("\r\n", ""), ("\n\n", "\n"), ("\r", "\r"), (" \n", " ")] {
        write_secret(dir.path(), "pw", &format!("{secret}{end}"), 0o600);
        let read = password(dir.path(), "password_file = \"pw\"", &environment());
        assert_eq!(read, Ok(format!("{secret}{kept}")), "{end:?}");
    }
}

#[test]
fn a_secret_file_that_others_may_read_is_a_mistake_but_a_credential_is_not() {
    let dir = TempDir::new().expect("a directory");
    for mode in [0o640, 0o604, 0o620] {
        write_secret(dir.path(), "pw", CANARY, mode);
        let told = password(dir.path(), "password_file = \"pw\"", &environment());
        let wanted = "c.toml:21:1: provider.b.password_file: the secret's file is accessible to group or others; `chmod \
                      600` it";
        assert_eq!(told, Err(vec![wanted.to_owned()]));
    }
    let env = environment().with_credentials(dir.path().to_owned());
    write_secret(dir.path(), "pw", CANARY, 0o440);
    for line in ["password_credential = \"pw\"", "password_file = \"pw\""] {
        assert_eq!(password(dir.path(), line, &env), Ok(CANARY.to_owned()), "{line}");
    }
    let told = password(dir.path(), "password_credential = \"../pw\"", &env).expect_err("a path is no name");
    assert_eq!(told, ["c.toml:21:1: provider.b.password_credential: must be the plain name of a credential"]);
}

#[test]
fn a_secret_that_is_missing_empty_or_given_twice_is_a_mistake() {
    let dir = TempDir::new().expect("a directory");
    write_secret(dir.path(), "empty", "\n", 0o600);
    for (line, wanted) in [
        ("password_file = \"nowhere\"", "the secret's file cannot be read: entity not found"),
        ("password_file = \".\"", "the secret's file is not a regular file"),
        ("password_file = \"empty\"", "the secret is empty"),
        ("password_env = \"TOKEN\"\npassword_file = \"empty\"", "`password` is given twice"),
    ] {
        let told = password(dir.path(), line, &environment()).expect_err("a mistake").join("\n");
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn no_secret_is_in_what_is_printed_for_debugging() {
    let http = "[provider.h]\nkind = \"http\"\nmanifest = \"x\"\nsettings.token_env = \"TOKEN\"\nsettings.id = \"CANARY-7f3a\"\n";
    let text = with(&format!("{SMTP}password_env = \"TOKEN\"\n{http}"));
    let settings = Settings::parse("c.toml", &text, Path::new(""), &environment()).expect("valid");
    let shown = format!("{settings:?} {settings:#?} {:?}", environment());
    assert!(!shown.contains(CANARY) && !shown.contains("AAAA"), "{shown}");
    let Kind::Http(h) = &settings.providers[2].kind else { panic!("h is HTTP") };
    assert_eq!(h.settings["token"].value.expose_secret(), CANARY);
    assert_eq!((h.settings["token"].literal, h.settings["id"].literal), (false, true));
}
