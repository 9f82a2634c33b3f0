//! The link of a message, made of what a request gives.

use zeroize::Zeroizing;

use crate::domain::uri::percent_encode;

/// A URL in which `{site_url}`, `{token_hash}`, `{email_action_type}` and `{redirect_to}` stand for what Supabase Auth
/// gives. Each is percent-encoded but the first, which must stand at the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    SiteUrl,
    TokenHash,
    Action,
    RedirectTo,
}

/// Why a text is no pattern of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It has another word in braces, or a brace alone.
    #[error("may have {{site_url}}, {{token_hash}}, {{email_action_type}} and {{redirect_to}}, and no other brace")]
    Placeholder,
    /// Without the token it leads nowhere.
    #[error("must have {{token_hash}}")]
    NoToken,
    /// It begins otherwise, or has the site's URL elsewhere.
    #[error("must begin with https:// or {{site_url}}, which stands nowhere else")]
    Start,
}

/// What a link is made of.
pub(super) struct Parts<'a> {
    pub site_url: &'a str,
    pub token_hash: &'a str,
    pub action: &'a str,
    pub redirect_to: &'a str,
}

impl LinkPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`BadPattern`].
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let mut pieces = vec![];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or(BadPattern::Placeholder)?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name {
                "site_url" => Piece::SiteUrl,
                "token_hash" => Piece::TokenHash,
                "email_action_type" => Piece::Action,
                "redirect_to" => Piece::RedirectTo,
                _ => return Err(BadPattern::Placeholder),
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        if pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('}'))) {
            return Err(BadPattern::Placeholder);
        }
        if !pieces.contains(&Piece::TokenHash) {
            return Err(BadPattern::NoToken);
        }
        let start_ok = match pieces.first() {
            Some(Piece::SiteUrl) => true,
            Some(Piece::Text(text)) => ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme)),
            _ => false,
        };
        if start_ok && !pieces.iter().skip(1).any(|piece| *piece == Piece::SiteUrl) {
            Ok(Self(pieces))
        } else {
            Err(BadPattern::Start)
        }
    }

    /// The link.
    pub(super) fn fill(&self, parts: &Parts<'_>) -> Zeroizing<String> {
        let mut link = Zeroizing::new(String::with_capacity(512));
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => link.push_str(text),
                Piece::SiteUrl => link.push_str(parts.site_url.trim_end_matches('/')),
                Piece::TokenHash => link.push_str(&Zeroizing::new(percent_encode(parts.token_hash))),
                Piece::Action => link.push_str(&percent_encode(parts.action)),
                Piece::RedirectTo => link.push_str(&percent_encode(parts.redirect_to)),
            }
        }
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_encoded_and_a_wrong_pattern_is_refused() {
        let parts = Parts {
            site_url: "http://localhost:9999/",
            token_hash: "pkce_ab{redirect_to}",
            action: "recovery",
            redirect_to: "https://shop.example/a?b=c&d",
        };
        let fill = |text: &str| LinkPattern::parse(text).map(|pattern| pattern.fill(&parts).to_string());
        let tail = "/verify?token={token_hash}&type={email_action_type}&redirect_to={redirect_to}";
        let query = "/verify?token=pkce_ab%7Bredirect_to%7D&type=recovery&redirect_to=https%3A%2F%2Fshop.example%2Fa%3Fb%3Dc%26d";
        assert_eq!(fill(&format!("{{site_url}}{tail}")), Ok(format!("http://localhost:9999{query}")));
        assert_eq!(fill(&format!("https://x.example{tail}")), Ok(format!("https://x.example{query}")));
        for (text, why) in [
            ("https://x.example/{token}", BadPattern::Placeholder),
            ("https://x.example/{token_hash", BadPattern::Placeholder),
            ("https://x.example/}{token_hash}", BadPattern::Placeholder),
            ("https://x.example/", BadPattern::NoToken),
            ("x.example/{token_hash}", BadPattern::Start),
            ("{token_hash}", BadPattern::Start),
            ("https://x.example/{token_hash}{site_url}", BadPattern::Start),
        ] {
            assert_eq!(LinkPattern::parse(text), Err(why), "{text}");
        }
    }
}
