// Package delivery answers one question: what happens when a delivery's turn has
// come? It fetches what is to be sent, renders it with the version that was
// frozen when the request was accepted, hands it to the channel's sender, and
// turns what came of that into the end of the attempt.
//
// It promises that nothing leaves after its expiry, that a failing channel
// touches no other one, and that attempts are burned only where this very
// delivery was at fault or unlucky: not for an account that is refused, nor for a
// provider that is down. It does not promise that a message is sent once: what a
// provider may have accepted is uncertain, and what follows is the channel's
// on_uncertain.
//
//	Carrier ── account …  one for each channel: may anything be sent now?
//	        ── sweeper    cancels what has expired, erases what is not needed any more
//	        ── measuring  what waits, for how long
//
// The account is asked before anything is claimed (workqueue.Admission), so that
// what must wait is held by nobody:
//
//	             failures in a row         until has passed: one alone
//	open ───────▶ held, until ───────────────────▶ on trial ──╮
//	  ▲           ▲  breaker, rate limit, refusal             │
//	  │           ╰──────────────── it failed, too ◀──────────┤
//	  ╰──────────────────────────────────── it was accepted ◀─╯
//	refused three times: paused, until somebody resumes it
//
// The account is this process's own knowledge, and may be lost at any moment. Only
// whether a channel is paused is a fact in the store, with who did it and why.
package delivery
