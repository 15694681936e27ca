//! The queue's operations, each one atomic step, as the port and its scripts have them.

use crate::faults::Fault;
use crate::job::Ticks;
use crate::mutation::Mutation;
use crate::reach::Reach;
use crate::scenario::{CLAIM_TIMEOUT, LIST, MAX_EXPIRED};
use crate::steps::Context;
use crate::world::{Claims, FAR, FOREIGN_FORM, Held, ListEntry, MEMBERS, World, attempts_of, member_of};

impl World {
    /// Appends to the list; false where the model's list is full.
    pub fn push(&mut self, entry: ListEntry) -> bool {
        let free = self.list.iter_mut().find(|place| place.is_none());
        free.is_some_and(|place| {
            *place = Some(entry);
            true
        })
    }

    /// Takes these entries off the head, each popped and parked in one go, as far as each still is the head.
    pub fn take_new(&mut self, looked_at: [Option<ListEntry>; LIST], cx: &Context) {
        for looked in looked_at.into_iter().flatten() {
            let head = self.list[0];
            if head != Some(looked) {
                cx.reach(Reach::TakenByAnother);
                if !cx.without(Mutation::TakenUnlooked) {
                    return;
                }
            }
            self.list.rotate_left(1);
            self.list[LIST - 1] = None;
            let due = if self.job.attempts == looked.attempts && self.is_at_cap() { 0 } else { looked.due };
            let foreign_form =
                looked.foreign && looked.attempts == 1 && cx.without(Mutation::NoCanonicalForm);
            self.park(if foreign_form { FOREIGN_FORM } else { member_of(looked.attempts) }, due, cx);
            let is_kept =
                head.is_none_or(|head| self.parked[member_of(head.attempts)].is_some() || foreign_form);
            self.blame(!is_kept, Fault::IntakeLost);
        }
    }

    fn is_at_cap(&self) -> bool {
        self.job.phase == recoup::job::Phase::RetryWaiting && self.job.attempts >= self.job.max_attempts
    }

    /// Parks a member; where it is parked, the earlier time wins.
    fn park(&mut self, member: usize, due: Ticks, cx: &Context) {
        let standing = self.parked[member];
        if let Some(standing) = standing {
            cx.reach(if due < standing { Reach::ParkedEarlier } else { Reach::ParkedLater });
        }
        let wins = standing.is_none_or(|standing| (due < standing) != cx.without(Mutation::LaterTimeWins));
        if wins {
            self.parked[member] = Some(due);
        }
        let twice = self.parked[member_of(1)].is_some() && self.parked[FOREIGN_FORM].is_some();
        self.blame(twice, Fault::WaitsTwice);
    }

    /// Parks what the sweep found, where it is not in flight.
    pub fn park_missing(&mut self, attempts: u8, open: bool, cx: &Context) {
        let member = member_of(attempts);
        let in_flight = self.in_flight[member].is_some();
        if in_flight {
            cx.reach(Reach::SweptInFlight);
            if !cx.without(Mutation::SweepIgnoresInFlight) {
                return;
            }
        }
        let stays = self.waits_no_longer_than_given_back(member);
        if stays || (self.parked[member].is_some() && cx.without(Mutation::SweepSkipsParked)) {
            return;
        }
        let listed = self.list.iter().flatten().any(|entry| entry.attempts == attempts);
        if self.parked[member].is_none() {
            self.blame(cx.scenario.prompt && (in_flight || listed), Fault::QueuedTwice);
            cx.reach(if open { Reach::SweptOpen } else { Reach::Swept });
        }
        self.park(member, 0, cx);
    }

    /// Whether the member is parked, and not for longer than any drain gives an entry back for.
    pub fn waits_no_longer_than_given_back(&self, member: usize) -> bool {
        self.parked[member].is_some_and(|due| due <= CLAIM_TIMEOUT)
    }

    /// Claims what is due, a page of it.
    pub fn claim_due(&mut self, drain: usize, cx: &Context) {
        for member in 0..MEMBERS {
            let Some(due) = self.parked[member].filter(|due| is_claimable(*due, cx)) else { continue };
            if let Some(deadline) = self.in_flight[member]
                && !cx.without(Mutation::ClaimedTwice)
            {
                cx.reach(Reach::ClaimPassedOver);
                self.parked[member] = Some(if deadline > 0 { deadline } else { CLAIM_TIMEOUT });
                continue;
            }
            self.blame(due > 0, Fault::ClaimedEarly);
            self.parked[member] = None;
            let kept = self.claims[member].filter(|_| cx.without(Mutation::GiveBackCounted));
            self.claims[member] = Some(kept.unwrap_or(Claims { expired: 0, first: 0 }));
            self.ghosts.ran_out[member] = 0;
            self.hold(drain, member);
        }
    }

    /// Whether anything is due.
    pub fn something_is_due(&self, cx: &Context) -> bool {
        self.parked.iter().flatten().any(|due| is_claimable(*due, cx))
    }

    /// Whether this member's claim ran out.
    pub fn has_expired(&self, member: usize) -> bool {
        self.in_flight[member].is_some_and(|deadline| deadline <= 0)
    }

    /// Claims an entry whose claim ran out, and counts that it did.
    pub fn claim_expired(&mut self, drain: usize, member: usize, cx: &Context) {
        for other in 0..MEMBERS {
            if self.has_expired(other) && (other == member || cx.without(Mutation::ExpiredInBatch)) {
                cx.reach(Reach::ClaimedAgain);
                let before = self.claims[other].unwrap_or(Claims { expired: 0, first: 0 });
                let counted = u8::from(!cx.without(Mutation::ExpiredNotCounted));
                let expired = (before.expired + counted).min(MAX_EXPIRED);
                self.claims[other] = Some(Claims { expired, ..before });
                self.ghosts.ran_out[other] = (self.ghosts.ran_out[other] + 1).min(MAX_EXPIRED);
                self.hold(drain, other);
            }
        }
    }

    fn hold(&mut self, drain: usize, member: usize) {
        let deadline = CLAIM_TIMEOUT;
        self.in_flight[member] = Some(deadline);
        self.drains[drain].held[member] = Some(Held {
            deadline,
            claims: self.claims[member].expect("what is in flight has its claims counted"),
            ran_out: self.ghosts.ran_out[member],
            orphan: false,
        });
        let holders = self
            .drains
            .iter()
            .filter(|drain| {
                let of_it = |held: &Held| held.deadline > 0 && !held.orphan;
                let form = |member: usize| drain.held[member].as_ref().is_some_and(of_it);
                attempts_of(member) == 1 && (form(FOREIGN_FORM) || form(member_of(1))) || form(member)
            })
            .count();
        self.blame(holders > 1, Fault::TwoHolders);
    }

    /// Whether the claim is still the caller's. Deadlines are milliseconds: that a claim from before Redis was emptied
    /// and one from after it fall on the same is taken for impossible.
    pub fn is_ours(&self, drain: usize, member: usize) -> bool {
        let held = self.drains[drain].held[member];
        held.is_some_and(|held| self.in_flight[member] == Some(held.deadline) && !held.orphan)
    }

    /// Takes the claim out of flight; false where it is no longer the caller's.
    pub fn let_go(&mut self, drain: usize, member: usize, unchecked: Mutation, cx: &Context) -> bool {
        if !self.is_ours(drain, member) && !cx.without(unchecked) {
            cx.reach(Reach::NotOurs);
            return false;
        }
        self.in_flight[member] = None;
        self.claims[member] = None;
        self.ghosts.ran_out[member] = 0;
        true
    }

    /// Parks a claimed entry again until `due`, uncounted.
    pub fn give_back(&mut self, drain: usize, member: usize, due: Ticks, cx: &Context) {
        let counted = self.claims[member].filter(|_| cx.without(Mutation::GiveBackCounted));
        if self.let_go(drain, member, Mutation::GivenBackUnchecked, cx) {
            cx.reach(Reach::GaveBack);
            self.claims[member] =
                counted.map(|claims| Claims { expired: (claims.expired + 1).min(MAX_EXPIRED), ..claims });
            self.park(member, due, cx);
        } else {
            cx.reach(Reach::GaveBackNotOurs);
        }
    }

    /// Redis loses everything.
    pub fn empty_redis(&mut self) {
        self.list = [None; LIST];
        self.parked = [None; MEMBERS];
        self.in_flight = [None; MEMBERS];
        self.claims = [None; MEMBERS];
        self.ghosts.ran_out = [0; MEMBERS];
        for held in self.drains.iter_mut().flat_map(|drain| &mut drain.held).flatten() {
            held.orphan = true;
        }
    }

    /// Whether nothing waits but what is due in the year 5138.
    pub fn queue_is_done(&self) -> bool {
        self.list == [None; LIST]
            && self.in_flight == [None; MEMBERS]
            && self.parked.iter().flatten().all(|due| *due == FAR)
    }
}

fn is_claimable(due: Ticks, cx: &Context) -> bool {
    due <= 0 || (due != FAR && cx.without(Mutation::ClaimedEarly))
}
