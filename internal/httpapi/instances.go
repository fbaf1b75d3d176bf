package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse/posthouse/internal/model"
)

// InstanceList lists instances: the living first, then by when they started.
type InstanceList struct {
	Instances []InstanceItem `json:"instances" nullable:"false"`
}

// InstanceItem is one run of one process.
type InstanceItem struct {
	ID         string          `json:"id" pattern:"^[0-9a-f]{16}$" doc:"Random, and new each time that a process starts."`
	Name       string          `json:"name" doc:"The host and the number of the process."`
	StartedAt  Time            `json:"started_at" nullable:"false"`
	LeaseUntil Time            `json:"lease_until" nullable:"false" doc:"Until when it counts as living unless it is heard of again, by the store's clock."`
	State      string          `json:"state" enum:"alive,dead" doc:"Alive until it has stopped, or others have declared it dead."`
	Partitions []PartitionItem `json:"partitions" nullable:"false" doc:"What it alone may work on now, by source and number. A source in parallel order has none."`
}

// PartitionItem is one partition of a source that an instance holds.
type PartitionItem struct {
	Source    string `json:"source"`
	Partition int    `json:"partition" minimum:"0" doc:"0 for a source in serial order."`
	Since     Time   `json:"since" nullable:"false"`
}

// InstancesParams is what a list of instances is made of.
type InstancesParams struct {
	Instances []model.Instance
	Occupancy model.Occupancy
	Sources   []model.Source
	Dead      bool // list the dead, too
}

// NewInstanceList shows who lives, and who holds what.
func NewInstanceList(p InstancesParams) InstanceList {
	names := make(map[model.SourceID]string, len(p.Sources))
	for _, s := range p.Sources {
		names[s.ID] = s.Name
	}
	held := make(map[model.InstanceID][]PartitionItem)
	for _, h := range p.Occupancy.Holdings {
		if h.Alive {
			held[h.Holder] = append(held[h.Holder], PartitionItem{Source: names[h.Queue], Partition: h.Number, Since: Time(h.Since)})
		}
	}
	list := InstanceList{Instances: []InstanceItem{}}
	for _, i := range p.Instances {
		if i.Dead && !p.Dead {
			continue
		}
		item := InstanceItem{
			ID: fmt.Sprintf("%016x", uint64(i.ID)), Name: i.Name, StartedAt: Time(i.StartedAt), LeaseUntil: Time(i.LeaseUntil),
			State: "alive", Partitions: []PartitionItem{},
		}
		if i.Dead {
			item.State = "dead"
		} else if held[i.ID] != nil {
			item.Partitions = held[i.ID]
		}
		slices.SortFunc(item.Partitions, func(a, b PartitionItem) int {
			return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Partition, b.Partition))
		})
		list.Instances = append(list.Instances, item)
	}
	slices.SortFunc(list.Instances, func(a, b InstanceItem) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

type instancesInput struct {
	Dead bool `query:"dead" doc:"List the dead, too: they are remembered for a week."`
}

func (a *api) registerInstances(h huma.API) {
	list := get("list-instances", "/v1/instances", "instances", "Who is alive, and which partitions each holds", 422, 503)
	list.Description = "As the store knows it: all instances that share it answer the same."
	huma.Register(h, list, a.listInstances)
}

func (a *api) listInstances(ctx context.Context, in *instancesInput) (*answer[InstanceList], error) {
	p, err := ReadInstances(ctx, a.Store)
	if err != nil {
		return nil, problemOf(ctx, a.Logger, "list instances", err)
	}
	p.Dead = in.Dead
	return &answer[InstanceList]{NewInstanceList(p)}, nil
}

// InstanceReader is where ReadInstances reads.
type InstanceReader interface {
	// Instances lists instances, living first.
	Instances(ctx context.Context) ([]model.Instance, error)
	// Occupancy says who holds what.
	Occupancy(ctx context.Context) (model.Occupancy, error)
	// Sources lists all sources that were ever registered, by name.
	Sources(ctx context.Context) ([]model.Source, error)
}

// ReadInstances reads what a list of instances is made of, by three calls: what
// happens between them may show in part.
func ReadInstances(ctx context.Context, s InstanceReader) (p InstancesParams, err error) {
	if p.Instances, err = s.Instances(ctx); err != nil {
		return p, err
	}
	if p.Occupancy, err = s.Occupancy(ctx); err != nil {
		return p, err
	}
	p.Sources, err = s.Sources(ctx)
	return p, err
}
