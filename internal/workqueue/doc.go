// Package workqueue answers one question: which message is executed next, by
// whom, and how does that end? It claims due work, fences it, runs handlers,
// settles what came of them, and recovers what a dead process left behind.
//
// It promises that a message which was kept is executed at least once and ends
// in success or failed, that no message is executed twice at the same time
// while processes live and keep their leases, and that first attempts start in
// the order of (due_at, seq): of a whole queue in serial order, of each key in
// keyed order, by one executor at a time in the whole cluster. It does not
// promise exactly once: a process may die after its handler has taken effect and
// before that is written down.
//
// A queue whose policy delivers is a channel's: an attempt of which nobody knows how
// it ended is uncertain there instead of failed, and what follows is the policy's;
// tries spent is dead. Its admission is asked before anything is claimed. In every
// queue a handler begins only while the instance that claimed holds its lease by its
// own clock, so that a process which was frozen for longer begins nothing.
//
// The store is authoritative for every state (package model draws them). What
// this package keeps in memory may be lost at any moment: it only decides what
// to ask the store for.
//
//	Engine ── member      the instance's lease and heartbeat; what it may still claim
//	       ── recoverer   after every heartbeat: orphans back to pending, or failed
//	       ── completer   gathers what came of executions, settles it in batches
//	       ── gate        everybody in, or one alone
//	       ── balancer    shares the partitions of keyed queues out among instances
//	       ── notifier    wakes other instances, and is woken by them
//	       ── queue …     one agreement after the other, each worked on by
//	            └─ lane … serial rounds, parallel slots, or one for each partition held
//
// What order a queue has is agreed between all instances, whatever their
// configurations say: the agreement is a fact in the store, with a generation
// that each claim must show. When all living instances want another one, the
// queue drains (nothing is claimed until nothing is processing), and the next
// generation begins. What waits then and was kept under other keys is placed
// anew before anything is claimed, so that it keeps its order.
//
// Locks are never held together, nor while a handler is called; the store is called
// under none but those that let one at a time start the engine, or place work.
package workqueue
