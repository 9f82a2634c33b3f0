use std::fmt;
use std::sync::OnceLock;

use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumber as Parsed, PhoneNumberFormat, ValidationError};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroize;

use super::BadAddress;

/// A phone number in E.164. Secret: `Debug` shows the mask, and it is wiped when dropped.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct PhoneNumber {
    text: String,
    /// Looked up once, and not at all for a number that is only sent to.
    plan: OnceLock<Plan>,
}

/// What the numbering plans say of a number. Secret.
#[derive(Clone, Default)]
struct Plan {
    /// The digits of the calling code; empty when nothing is known.
    code: String,
    country: Option<[u8; 2]>,
    canonical: Option<String>,
}

impl Plan {
    fn of(parsed: &Parsed) -> Self {
        let e164 = |parsed: &Parsed| PHONE_NUMBER_UTIL.format(parsed, PhoneNumberFormat::E164).into_owned();
        let mut canonical = e164(parsed);
        // A prefix may have been left in more than once; each reading takes one away.
        while let Ok(shorter) = PHONE_NUMBER_UTIL.parse(&canonical, None).map(|again| e164(&again))
            && shorter.len() < canonical.len()
        {
            canonical.zeroize();
            canonical = shorter;
        }
        let region = PHONE_NUMBER_UTIL.get_region_for_number(parsed);
        let country = region.and_then(|region| <[u8; 2]>::try_from(region.as_region_str().as_bytes()).ok());
        Self {
            code: parsed.country_code.to_string(),
            country: country.filter(|code| code.iter().all(u8::is_ascii_uppercase)),
            canonical: Some(canonical),
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.canonical.zeroize();
    }
}

impl PhoneNumber {
    /// Checks `text`: the form of ITU-T E.164 section 6, a calling code that is assigned, and a length that occurs under
    /// it. Whether the number is in service is not judged: numbering plans change faster than any table of them, and the
    /// provider refuses what does not exist.
    ///
    /// # Errors
    /// [`BadAddress::PhoneForm`], [`BadAddress::CallingCode`] or [`BadAddress::PhoneLength`].
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        check_form(text)?;
        let parsed = PHONE_NUMBER_UTIL.parse(text, None).map_err(|_| BadAddress::CallingCode)?;
        match PHONE_NUMBER_UTIL.is_possible_number_with_reason(&parsed) {
            Ok(_) => {
                let plan = Plan::of(&parsed);
                // What is long enough only by a national prefix is no number.
                plan.canonical.as_deref().map_or(Ok(()), check_form).map_err(|_| BadAddress::PhoneLength)?;
                Ok(Self { text: text.to_owned(), plan: OnceLock::from(plan) })
            }
            Err(ValidationError::InvalidCountryCode) => Err(BadAddress::CallingCode),
            Err(_) => Err(BadAddress::PhoneLength),
        }
    }

    /// The number as it was given: `+` and digits.
    pub fn e164(&self) -> &str {
        &self.text
    }

    /// The country it belongs to (ISO 3166-1 alpha-2). `None` for international services, and where countries share a
    /// calling code and the number's range is not known.
    pub fn country(&self) -> Option<[u8; 2]> {
        self.plan().country
    }

    /// The calling code and the last digits, three at most and never more than a third of what follows the code. The
    /// number of dots is fixed, so that the length stays hidden.
    pub fn mask(&self) -> String {
        let code = &self.plan().code;
        let rest = self.text.get(1 + code.len()..).unwrap_or_default();
        let shown = (rest.len() / 3).min(3);
        format!("+{code}•••••{}", &rest[rest.len() - shown..])
    }

    /// One spelling for all that dial the same number: a national prefix that was left in falls away. Secret.
    pub fn canonical(&self) -> String {
        self.plan().canonical.as_ref().unwrap_or(&self.text).clone()
    }

    fn plan(&self) -> &Plan {
        let look_up = || PHONE_NUMBER_UTIL.parse(&self.text, None).map_or_else(|_| Plan::default(), |p| Plan::of(&p));
        self.plan.get_or_init(look_up)
    }
}

impl PartialEq for PhoneNumber {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PhoneNumber {}

fn check_form(text: &str) -> Result<(), BadAddress> {
    let digits = text.strip_prefix('+').ok_or(BadAddress::PhoneForm)?;
    let fits = (7..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if fits && !digits.starts_with('0') { Ok(()) } else { Err(BadAddress::PhoneForm) }
}

/// Reads what was stored. Only the form is checked: a number that was admitted once stays readable when a later version
/// knows other numbering plans.
impl TryFrom<String> for PhoneNumber {
    type Error = BadAddress;

    fn try_from(mut text: String) -> Result<Self, BadAddress> {
        match check_form(&text) {
            Ok(()) => Ok(Self { text, plan: OnceLock::new() }),
            Err(e) => {
                text.zeroize();
                Err(e)
            }
        }
    }
}

impl Serialize for PhoneNumber {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl fmt::Debug for PhoneNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mask())
    }
}

impl Drop for PhoneNumber {
    fn drop(&mut self) {
        self.text.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_possible_numbers_in_e164_are_taken() {
        for text in ["+84901234567", "+12025550173", "+393123456789", "+39066982", "+870773111632", "+2904123"] {
            assert_eq!(PhoneNumber::parse(text).map(|p| p.e164().to_owned()), Ok(text.to_owned()));
        }
        for (text, why) in [
            ("", BadAddress::PhoneForm),
            ("+", BadAddress::PhoneForm),
            ("84901234567", BadAddress::PhoneForm),
            ("0084901234567", BadAddress::PhoneForm),
            ("+84 901234567", BadAddress::PhoneForm),
            ("+84901234567\n", BadAddress::PhoneForm),
            ("+84901234567;ext=1", BadAddress::PhoneForm),
            ("+٨٤٩٠١٢٣٤٥٦٧", BadAddress::PhoneForm),
            ("+849012", BadAddress::PhoneForm),
            ("+8490123456789012", BadAddress::PhoneForm),
            ("+0901234567", BadAddress::PhoneForm),
            ("+2101234567", BadAddress::CallingCode),
            ("+999123456789", BadAddress::CallingCode),
            ("+8490123", BadAddress::PhoneLength),
            ("+4907911", BadAddress::PhoneLength),
            ("+120255501", BadAddress::PhoneLength),
            ("+120255501734", BadAddress::PhoneLength),
        ] {
            assert_eq!(PhoneNumber::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn the_country_is_told_where_it_can_be() {
        for (text, country) in [
            ("+84901234567", Some(*b"VN")),
            ("+447400123456", Some(*b"GB")),
            ("+447911123456", Some(*b"GG")),
            ("+16135550173", Some(*b"CA")),
            ("+870773111632", None),
        ] {
            assert_eq!(PhoneNumber::parse(text).expect("possible").country(), country, "{text}");
        }
    }

    #[test]
    fn a_mask_shows_the_calling_code_and_few_digits() {
        for (text, mask) in [
            ("+84901234567", "+84•••••567"),
            ("+12025550173", "+1•••••173"),
            ("+2904123", "+290•••••3"),
            ("+4520123456", "+45•••••56"),
        ] {
            assert_eq!(PhoneNumber::parse(text).expect("possible").mask(), mask);
        }
    }

    #[test]
    fn numbers_are_equal_when_their_digits_are() {
        let number = |text| PhoneNumber::parse(text).expect("possible");
        assert_eq!(number("+84901234567"), number("+84901234567"));
        assert_ne!(number("+84901234567"), number("+84901234568"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = PhoneNumber::parse(&text);
        }

        #[test]
        fn what_is_taken_reads_back(text in "\\+[1-9][0-9]{6,14}") {
            if let Ok(phone) = PhoneNumber::parse(&text) {
                prop_assert_eq!(PhoneNumber::parse(phone.e164()), Ok(phone.clone()));
                prop_assert_eq!(phone.e164(), &text);
                let mask = phone.mask();
                prop_assert!(!mask.contains(&text[text.len() - 4..]));
                prop_assert!(phone.canonical().starts_with('+'));
            }
        }
    }
}
