//! Words of the SMTP dialogue.

use data_encoding::BASE64;

/// The address between the angle brackets, and what follows it.
pub fn address(command: &str) -> (String, String) {
    let rest = command.split_once('<').map_or("", |(_, rest)| rest);
    let (address, after) = rest.rsplit_once('>').unwrap_or((rest, ""));
    (address.to_owned(), after.trim().to_owned())
}

/// What a base64 word of AUTH says.
pub fn decoded(text: &str) -> String {
    String::from_utf8(BASE64.decode(text.as_bytes()).unwrap_or_default()).unwrap_or_default()
}
