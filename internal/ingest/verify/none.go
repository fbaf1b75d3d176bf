package verify

// none accepts everything: for senders that cannot sign, behind a network that keeps others away.
type none struct{}

var _ Verifier = none{}

func newNone(Config) (Verifier, error) { return none{}, nil }

func (none) Verify(Request) error { return nil }
