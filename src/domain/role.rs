//! What the holder of an API key may do.

use super::outcome::codes;

codes!(
    /// What a key may be used for.
    Role {
        /// Post events, read and cancel notifications.
        Sender = "sender",
        /// Read notifications, the log and the accounting.
        Auditor = "auditor",
        /// Settle unknowns; read and cancel notifications.
        Operator = "operator",
    }
);
