package model

import (
	"crypto/sha256"
	"encoding/binary"
)

// Order is which messages of one source may be executed at once.
type Order string

const (
	// Serial: one after the other, one executor in the whole cluster.
	Serial Order = "serial"
	// Keyed: one after the other for each key; keys side by side, over all
	// instances.
	Keyed Order = "keyed"
	// Parallel: many at once, in no order.
	Parallel Order = "parallel"
)

// MaxPartitions bounds Ordering.Partitions.
const MaxPartitions = Slots

// Ordering is what a configuration asks of the order of one source.
type Ordering struct {
	Order Order
	// Partitions is how many keys may be worked on at once in Keyed, 1 to
	// MaxPartitions; 1 in Serial, 0 in Parallel.
	Partitions int
	// Key is the expression that tells a message's key in Keyed; otherwise
	// empty.
	Key string
	// Block: a message that is not finished keeps those of its key behind it
	// from starting, also while it waits for a retry. In Serial all messages
	// have one key. Never in Parallel.
	Block bool
}

// HasKeys says whether messages under this ordering need a Key.
func (o Ordering) HasKeys() bool { return o.Order == Keyed || o.Block }

// KeyID numbers, for one source, a way to tell keys: an expression, and whether
// they block. It is given by the store. 0 is for orderings without keys. A
// number always means the same.
type KeyID int32

// Agreed is the ordering that holds for a source in the whole cluster, whatever
// the configurations of single instances say. It is a fact in the store.
type Agreed struct {
	Ordering
	KeyID KeyID
	// Generation counts the changes. A claim shows it.
	Generation int64
	// Draining: it is about to change. Nothing is claimed; when nothing is
	// processing any more the next generation begins.
	Draining bool
}

// Slots is how many slots the keys of one KeyID are spread over. A slot, and so
// all messages of a key, belongs to the partition slot mod Partitions.
const Slots = 256

// Slot is where work waits: KeyID × Slots + a number that the key tells.
type Slot int32

// Key says where a message stands among those of its source. The zero Key is
// right for a source without keys.
type Key struct {
	Slot Slot
	// Hash tells keys apart where they block, and is 0 where they do not.
	Hash int64
}

// KeyOf places a key, which is any text that is the same for messages of one
// key alone. Two keys share a hash once in 2^63: they then wait for each other.
func (a Agreed) KeyOf(key []byte) Key {
	if a.KeyID == 0 {
		return Key{}
	}
	if a.Key == "" {
		key = nil // there is one key
	}
	sum := sha256.Sum256(key)
	k := Key{Slot: Slot(a.KeyID) * Slots}
	if a.Key != "" {
		k.Slot += Slot(sum[8])
	}
	if a.Block {
		k.Hash = int64(binary.BigEndian.Uint64(sum[:8])>>1) + 1
	}
	return k
}

// SlotsOf lists the slots of one partition: in orders other than Keyed the one
// slot that is in use.
func (a Agreed) SlotsOf(partition int) []Slot {
	first := Slot(a.KeyID) * Slots
	if a.Key == "" {
		return []Slot{first}
	}
	slots := make([]Slot, 0, Slots/max(a.Partitions, 1)+1)
	for s := partition; s < Slots; s += max(a.Partitions, 1) {
		slots = append(slots, first+Slot(s))
	}
	return slots
}

// Partition is the partition that a slot belongs to.
func (a Agreed) Partition(s Slot) int { return int(s) % Slots % max(a.Partitions, 1) }

// SlotRange returns the bounds [from, to) of the slots of this KeyID. Pending
// work outside of them was kept by an instance that went by another KeyID.
func (id KeyID) SlotRange() (from, to Slot) {
	if id == 0 {
		return 0, 1
	}
	return Slot(id) * Slots, Slot(id+1) * Slots
}

// Partition names one share of a queue that one instance at a time may work on.
// Serial has number 0 alone.
type Partition struct {
	Queue  SourceID
	Number int
}

// Want is what one instance's configuration asks of one queue.
type Want struct {
	Queue SourceID
	Ordering
}
