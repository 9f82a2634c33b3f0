//! Which attempts a period holds, over a log of several pages: a ledger whose clock is moved, and a provider with a list.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use sendonce::domain::content::Channel;
use sendonce::domain::ids::{ProviderName, Tenant};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::domain::receipt::Receipt;
use sendonce::domain::time::Timestamp;
use sendonce::provider::gate::Gate;
use sendonce::provider::statement::{Listed, Page, PageStart, Period, Statement};
use sendonce::provider::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use sendonce::statement::{Line, Question, run};
use tokio::sync::mpsc;

use crate::support::bench::{Bench, START, accepted, message_id, provider, silent, tenant};

const HOUR: Duration = Duration::from_secs(3600);
const HOURS: u32 = 24;
const EACH: u32 = 16;

/// A provider that does nothing but list.
struct Shelf {
    name: ProviderName,
    abilities: Abilities,
    list: Vec<Listed>,
}

#[async_trait]
impl Statement for Shelf {
    fn window(&self) -> Duration {
        HOUR * HOURS
    }

    async fn page(&self, _: Period, _: &PageStart, _: Timestamp) -> Option<Page> {
        Some(Page { messages: self.list.clone(), next: None })
    }
}

#[async_trait]
impl Provider for Shelf {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        Channel::Sms
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, _: &Dispatch, _: &Gate) -> Outcome {
        Outcome::unknown(Reason::LostAnswer)
    }

    async fn lookup(&self, _: &Inquiry) -> LookupAnswer {
        LookupAnswer::Unreadable
    }

    async fn receipts(&self, _: &ReceiptRequest, _: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        Err(ReceiptError::NotOffered)
    }

    fn statement(&self) -> Option<&dyn Statement> {
        Some(self)
    }
}

fn hour(n: u32) -> Timestamp {
    START.plus(HOUR * n)
}

#[tokio::test]
async fn a_period_holds_its_own_attempts_wherever_they_stand_in_the_log_and_only_their_tenant_is_told() {
    let bench = Bench::with(silent()).await;
    let mut list = vec![];
    for h in 0..HOURS {
        let names: Vec<String> = (0..EACH).map(|n| format!("e{h}-{n}")).collect();
        join_all(names.iter().map(|name| bench.admit(name))).await;
        let claimed = bench.claim("sms-a").await;
        assert_eq!(claimed.len(), EACH as usize);
        let ids: Vec<String> = (0..EACH).map(|n| format!("m{h}-{n}")).collect();
        let settled = claimed.iter().zip(&ids).map(|(claimed, id)| bench.settle(claimed, accepted(id)));
        join_all(settled).await;
        for id in &ids {
            let message_id = message_id(id);
            let listed = Listed { reference: None, message_id, at: hour(h).plus(HOUR / 60), status: None };
            // A list may have several lines of one message.
            list.extend([listed.clone(), listed]);
        }
        bench.clock.advance(HOUR);
    }
    // Of the last hour one message is missing.
    list.truncate(list.len() - 2);
    let shelf = Arc::new(Shelf { name: provider("sms-a"), abilities: silent(), list });
    let compared = async |from: u32, to: u32, tenant: Tenant| {
        let period = Period { since: hour(from), until: hour(to) };
        let question = Question { provider: shelf.clone(), period, tenant };
        let (lines, mut told) = mpsc::channel(1000);
        run(bench.ledger.clone(), bench.clock.clone(), question, lines).await;
        let mut all = vec![];
        while let Some(line) = told.recv().await {
            all.push(line);
        }
        let Some(Line::Done(sums)) = all.pop() else { panic!("no end") };
        (sums, all.iter().filter(|line| !matches!(line, Line::Progress { .. })).count())
    };
    for (from, to) in [(0, HOURS), (0, 1), (7, 8), (11, 20), (23, 24)] {
        let (sums, lines) = compared(from, to, tenant()).await;
        let (all, missing) = ((EACH * (to - from)) as usize, usize::from(to == HOURS));
        assert_eq!((sums.attempts, sums.listed, sums.matched), (all, all - missing, all - missing), "{from} to {to}");
        assert_eq!(
            (sums.ours_only, sums.provider_only, sums.settled, lines),
            (missing, 0, 0, missing),
            "{from} to {to}"
        );
    }
    let other = Tenant::parse("other").expect("a tenant");
    let (sums, lines) = compared(0, HOURS, other).await;
    assert_eq!((sums.attempts, sums.ours_only, sums.provider_only, lines), (0, 0, 0, 0));
}
