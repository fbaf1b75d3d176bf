// Package crashpoint names the places at which a crash test kills the process.
// In an ordinary build Hit does nothing and is inlined away; with the build tag
// "crashpoints" the environment variable POSTHOUSE_CRASH ("name:n") makes the
// n-th Hit of that name send SIGKILL to the process itself.
package crashpoint

// The places. Each stands where its name says, in the order of a message's life.
const (
	BeforePutCommit = "before-put-commit" // rows written, not committed
	AfterPutCommit  = "after-put-commit"  // committed, not yet answered
	AfterClaim      = "after-claim"       // claimed, not started
	AfterStart      = "after-start"       // started, handler not yet called
	BeforeSend      = "before-send"       // a delivery is rendered, its sender not yet called
	AfterSend       = "after-send"        // its sender returned: the provider may have it
	AfterHandler    = "after-handler"     // handler returned, nothing settled
	BeforeSettle    = "before-settle"     // outcomes written, not committed
	AfterSettle     = "after-settle"      // outcomes committed
)
