package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posthouse/posthouse/internal/app"
	"github.com/posthouse/posthouse/internal/httpapi"
	"github.com/posthouse/posthouse/internal/model"
)

type instancesCmd struct {
	storeFlags
	Dead bool `help:"Show the dead, too: they are remembered for a week."`
}

func (c *instancesCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	return c.withReady(ctx, toLook, func(s app.Store) error {
		p, err := httpapi.ReadInstances(ctx, s)
		if err != nil {
			return err
		}
		p.Dead = c.Dead
		list := httpapi.NewInstanceList(p)
		if c.JSON {
			return printJSON(list)
		}
		return printInstances(list)
	})
}

// printInstances writes a line for each instance, and one more for each further
// group of partitions that it holds since another time.
func printInstances(list httpapi.InstanceList) error {
	if len(list.Instances) == 0 {
		_, err := fmt.Println("No instance is alive.")
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tID\tSTATE\tSTARTED\tSOURCE\tPARTITIONS\tSINCE")
	for _, i := range list.Instances {
		head := fmt.Sprintf("%s\t%s\t%s\t%s", plain(i.Name, 60), i.ID, i.State, seconds(i.StartedAt))
		groups := groupPartitions(i.Partitions)
		if len(groups) == 0 {
			groups = []partitionGroup{{}}
		}
		for _, g := range groups {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", head, g.source, ranges(g.numbers), g.since)
			head = "\t\t\t"
		}
	}
	return w.Flush()
}

func seconds(t httpapi.Time) string { return model.Micros(t).Time().Format(time.RFC3339) }

// partitionGroup is partitions of one source that were taken within one second.
type partitionGroup struct {
	source, since string
	numbers       []int
}

// groupPartitions keeps the order, which is by source and number.
func groupPartitions(partitions []httpapi.PartitionItem) []partitionGroup {
	var groups []partitionGroup
	place := map[[2]string]int{}
	for _, p := range partitions {
		key := [2]string{p.Source, seconds(p.Since)}
		at, ok := place[key]
		if !ok {
			at = len(groups)
			place[key] = at
			groups = append(groups, partitionGroup{source: p.Source, since: key[1]})
		}
		groups[at].numbers = append(groups[at].numbers, p.Partition)
	}
	return groups
}

// ranges writes ascending numbers as in 0-3,7.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ",")
}
