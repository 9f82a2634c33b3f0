//! Both backends have the same tables, and every statement of both is one that the database accepts.

use std::collections::BTreeMap;

use sendonce::store::postgres::{callbacks, sql as pg};
use sqlx::{Connection as _, Executor as _, Row as _, SqlSafeStr as _};

use super::*;

/// What a column is, in words that both backends share.
#[derive(Debug, PartialEq, Eq)]
struct Column {
    kind: &'static str,
    nullable: bool,
    in_primary_key: bool,
}

type Tables = BTreeMap<String, BTreeMap<String, Column>>;

fn kind_of(declared: &str) -> &'static str {
    match declared.to_ascii_lowercase().as_str() {
        "blob" | "bytea" => "bytes",
        "text" => "text",
        "integer" | "smallint" | "bigint" => "number",
        other => panic!("no portable type: {other}"),
    }
}

async fn sqlite_tables(path: &Path) -> Tables {
    let mut connection = sqlx::SqliteConnection::connect(path.to_str().expect("text")).await.expect("connects");
    let rows = connection
        .fetch_all(
            "SELECT t.name AS \"table\", c.name, c.type, c.\"notnull\", c.pk FROM pragma_table_list AS t \
             JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table' AND t.schema = 'main' \
             AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name <> '_sqlx_migrations'",
        )
        .await
        .expect("reads");
    let mut tables = Tables::new();
    for row in rows {
        let in_primary_key = row.get::<i64, _>("pk") > 0;
        let column = Column {
            kind: kind_of(row.get("type")),
            nullable: row.get::<i64, _>("notnull") == 0 && !in_primary_key,
            in_primary_key,
        };
        tables.entry(row.get("table")).or_default().insert(row.get("name"), column);
    }
    tables
}

async fn postgres_tables(database: &Database) -> Tables {
    let rows = database
        .connect()
        .await
        .fetch_all(
            "SELECT c.table_name::text AS \"table\", c.column_name::text AS name, c.data_type::text AS type, \
             c.is_nullable = 'YES' AS nullable, EXISTS (SELECT 1 FROM information_schema.key_column_usage AS k \
             JOIN information_schema.table_constraints AS t USING (constraint_name, table_name) \
             WHERE t.constraint_type = 'PRIMARY KEY' AND k.table_name = c.table_name \
             AND k.column_name = c.column_name) AS pk FROM information_schema.columns AS c \
             WHERE c.table_schema = 'public' AND c.table_name <> '_sqlx_migrations'",
        )
        .await
        .expect("reads");
    let mut tables = Tables::new();
    for row in rows {
        let column =
            Column { kind: kind_of(row.get("type")), nullable: row.get("nullable"), in_primary_key: row.get("pk") };
        tables.entry(row.get("table")).or_default().insert(row.get("name"), column);
    }
    tables
}

#[tokio::test]
async fn both_backends_have_the_same_tables_and_columns() {
    let (dir, store) = fresh().await;
    store.close().await;
    let sqlite = sqlite_tables(&dir.path().join("s.db")).await;
    let bed = Bed::postgres().await;
    let postgres = postgres_tables(bed.database()).await;
    assert!(sqlite.len() >= 6 && sqlite["work"].len() > 20, "the tables were found");
    assert_eq!(sqlite, postgres);
}

#[tokio::test]
async fn both_backends_have_migrations_of_the_same_numbers() {
    let numbers = |backend: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(backend);
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("lists")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let sqlite = numbers("sqlite");
    assert!(!sqlite.is_empty());
    assert_eq!(sqlite, numbers("postgres"));
}

#[tokio::test]
async fn every_statement_is_accepted_by_its_database() {
    let bed = Bed::postgres().await;
    let mut connection = bed.database().connect().await;
    for text in pg::ALL.iter().chain(callbacks::STATEMENTS) {
        let prepared = connection.execute(sqlx::AssertSqlSafe(format!("PREPARE s AS {text}"))).await;
        assert!(prepared.is_ok(), "{text}\n{prepared:?}");
        connection.execute("DEALLOCATE s").await.expect("deallocates");
    }
    let (dir, store) = fresh().await;
    store.close().await;
    let file = dir.path().join("s.db");
    let mut connection = sqlx::SqliteConnection::connect(file.to_str().expect("text")).await.expect("connects");
    for text in sql::hot().chain(sql::RARE.iter().copied()) {
        let prepared = connection.prepare(sqlx::AssertSqlSafe(text).into_sql_str()).await;
        assert!(prepared.is_ok(), "{text}");
    }
}
