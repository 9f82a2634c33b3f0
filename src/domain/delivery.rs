//! The word on delivery that a set of receipts adds up to.
//!
//! Receipts come late, twice and in any order. What is shown is computed from the set of facts, so every order gives the
//! same answer: each part is delivered or not by rank, and the whole follows from the parts.

use super::content::Channel;
use super::outcome::codes;
use super::receipt::{Part, ReceiptStatus};

codes!(
    /// What is known of delivery.
    Delivery {
        /// Nothing yet.
        None = "none",
        /// All parts are delivered.
        Delivered = "delivered",
        /// Some part is not and will not be.
        Undelivered = "undelivered",
    }
);

/// Which parts have been told to be delivered and undelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeliveryFacts {
    /// Bit `i`: some receipt said that part `i` is delivered.
    pub delivered: u32,
    /// Bit `i`: some receipt said that part `i` is not.
    pub undelivered: u32,
    /// The largest number of parts that a receipt named; 0 before any did.
    pub parts: u8,
}

impl DeliveryFacts {
    /// The facts with one more.
    #[must_use]
    pub fn with(mut self, status: ReceiptStatus, part: Part) -> Self {
        let bit = 1_u32.checked_shl(u32::from(part.index)).unwrap_or(0);
        match status {
            ReceiptStatus::Progress => return self,
            ReceiptStatus::Delivered => self.delivered |= bit,
            ReceiptStatus::Undelivered => self.undelivered |= bit,
        }
        self.parts = self.parts.max(part.of);
        self
    }

    /// What they add up to. For SMS a part that was once delivered stays so: a later failure report for it is noise of
    /// the networks. For mail a bounce outranks a delivery, because a receiving server may accept first and bounce after
    /// (Amazon SES, "Amazon SNS notification contents").
    pub fn verdict(self, channel: Channel) -> Delivery {
        let all = match self.parts {
            0 => return Delivery::None,
            n => u32::MAX >> (32 - u32::from(n.min(Part::MAX))),
        };
        let failed = match channel {
            Channel::Sms => self.undelivered & !self.delivered,
            Channel::Email => self.undelivered,
        };
        if failed & all != 0 {
            Delivery::Undelivered
        } else if self.delivered & all == all {
            Delivery::Delivered
        } else {
            Delivery::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReceiptStatus::{Delivered, Progress, Undelivered};

    fn verdicts(channel: Channel, receipts: &[(ReceiptStatus, Part)]) -> Vec<Delivery> {
        let fold = |order: &[usize]| {
            let facts =
                order.iter().fold(DeliveryFacts::default(), |facts, &i| facts.with(receipts[i].0, receipts[i].1));
            facts.verdict(channel)
        };
        let mut order: Vec<usize> = (0..receipts.len()).collect();
        let mut out = vec![];
        for turn in 0..receipts.len() {
            order.rotate_left(turn);
            out.push(fold(&order));
            let mut back = order.clone();
            back.reverse();
            out.push(fold(&back));
        }
        out
    }

    #[test]
    fn the_verdict_is_the_same_for_every_order_of_arrival() {
        let part = |index| Part { index, of: 2 };
        let table = [
            (
                Channel::Sms,
                vec![
                    (Delivered, Part::WHOLE),
                    (Progress, Part::WHOLE),
                    (Delivered, Part::WHOLE),
                    (Undelivered, Part::WHOLE),
                ],
                Delivery::Delivered,
            ),
            (Channel::Email, vec![(Delivered, Part::WHOLE), (Undelivered, Part::WHOLE)], Delivery::Undelivered),
            (Channel::Sms, vec![(Delivered, part(0)), (Undelivered, part(1))], Delivery::Undelivered),
            (Channel::Sms, vec![(Delivered, part(0)), (Delivered, part(1))], Delivery::Delivered),
            (Channel::Sms, vec![(Delivered, part(0)), (Progress, part(1))], Delivery::None),
            (Channel::Sms, vec![(Progress, Part::WHOLE)], Delivery::None),
        ];
        for (channel, receipts, expected) in table {
            for got in verdicts(channel, &receipts) {
                assert_eq!(got, expected, "{channel:?} {receipts:?}");
            }
        }
    }
}
