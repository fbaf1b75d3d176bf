package running

import "sync"

// Answers collects what the senders were told.
type Answers struct {
	mu  sync.Mutex
	all []Answer
}

// Add is made for LoadConfig.Answered.
func (a *Answers) Add(one Answer) {
	a.mu.Lock()
	a.all = append(a.all, one)
	a.mu.Unlock()
}

// Record returns all of them, in the order in which they came.
func (a *Answers) Record() []Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Answer(nil), a.all...)
}
