package ingest

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/posthouse/posthouse/internal/expression"
	"github.com/posthouse/posthouse/internal/model"
)

// Dedup says by what a sender's second push of the same is known.
type Dedup struct {
	// Key tells what is the same. It sees the push as it came. A push on which
	// it cannot be evaluated is kept, whatever was kept before. Nil: all are kept.
	Key    *expression.Key
	Window time.Duration // from when the first was kept, default 8 days
}

// defaultWindow is how long senders that give up late push the same again.
const defaultWindow = 8 * 24 * time.Hour

// keying is how the messages of one source are placed, as the cluster has
// agreed. It is made anew when that changes.
type keying struct {
	agreed  model.Agreed
	program *expression.Key // nil: there is one key
	err     error           // the expression cannot be compiled here
}

func newKeying(a model.Agreed) *keying {
	k := &keying{agreed: a}
	if a.KeyID != 0 && a.Key != "" {
		k.program, k.err = expression.CompileKey(a.Key)
	}
	return k
}

// place returns where the message stands, and why its key cannot be evaluated;
// it then stands with all others of which that is so. The expression sees the
// message as it is kept, so that it says the same when it is placed later.
func (k *keying) place(m *model.NewMessage) (key model.Key, why error) {
	var text []byte
	if k.program != nil {
		text, why = evalKey(k.program, expression.Input{
			Body: m.Body, HeaderLines: m.Headers, RawQuery: string(m.Query), ContentType: m.ContentType, Size: int64(len(m.Body)),
		})
	}
	return k.agreed.KeyOf(text), why
}

// evalKey evaluates; a push that cannot be judged has no key, whatever the reason.
func evalKey(k *expression.Key, in expression.Input) (key []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			key, err = nil, &panicError{value: p}
		}
	}()
	return k.Eval(in)
}

// dedupOf returns the message's key among those that its sender may push again.
func (d Dedup) dedupOf(in expression.Input) (model.Dedup, error) {
	key, err := evalKey(d.Key, in)
	if err != nil {
		return model.Dedup{}, err
	}
	return model.Dedup{Hash: sha256.Sum256(key), Window: d.Window}, nil
}

// SetAgreed says by what the messages of a source are placed from now on; one
// of a source that the door does not have is passed over. It may be called at
// any time, by anyone, and costs nothing where nothing has changed.
func (d *Door) SetAgreed(id model.SourceID, a model.Agreed) {
	s := d.byID[id]
	if s == nil {
		return
	}
	s.agreeMu.Lock()
	defer s.agreeMu.Unlock()
	var before model.KeyID
	if k := s.keying.Load(); k != nil {
		before = k.agreed.KeyID
	}
	if a.KeyID == before {
		return // a number always means the same
	}
	if a.KeyID == 0 {
		s.keying.Store(nil)
		return
	}
	k := newKeying(a)
	s.keying.Store(k)
	if k.err != nil {
		d.log.Error("the key that the instances have agreed on cannot be compiled here; what this instance keeps is placed later, by others",
			"source", s.Name, "key_id", a.KeyID, "error", k.err.Error())
	}
}

// Placer tells where kept messages stand, exactly as the door does for those
// that come. The zero Placer is ready; it is safe for concurrent use.
type Placer struct {
	mu      sync.Mutex
	keyings map[string]*keying // by expression
}

// maxKeyings bounds what a Placer remembers: sources change their keys now and then.
const maxKeyings = 1000

// KeyOf returns where m stands under a. A message whose key cannot be evaluated
// stands with all others of which that is so, which is no error; an expression
// that cannot be compiled is.
func (p *Placer) KeyOf(a model.Agreed, m *model.Message) (model.Key, error) {
	if a.KeyID == 0 || a.Key == "" {
		return a.KeyOf(nil), nil
	}
	p.mu.Lock()
	k := p.keyings[a.Key]
	if k == nil {
		if p.keyings == nil || len(p.keyings) >= maxKeyings {
			p.keyings = make(map[string]*keying)
		}
		k = newKeying(a)
		p.keyings[a.Key] = k
	}
	p.mu.Unlock()
	if k.err != nil {
		return model.Key{}, fmt.Errorf("compile the key that the instances have agreed on: %w", k.err)
	}
	now := keying{agreed: a, program: k.program}
	key, _ := now.place(&m.NewMessage)
	return key, nil
}
