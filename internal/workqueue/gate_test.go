package workqueue

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	t.Run("IN-14 one alone waits for the others, and they for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			g.enter(nil)
			var order []string
			go func() {
				leave, ok := g.enterAlone(nil, time.Minute)
				if !ok {
					t.Error("not let in alone")
					return
				}
				order = append(order, "alone")
				time.Sleep(time.Second)
				order = append(order, "alone ends")
				leave()
			}()
			synctest.Wait()
			go func() {
				g.enter(nil)
				order = append(order, "next")
				g.leave()
			}()
			synctest.Wait()
			order = append(order, "first ends")
			g.leave()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			want := []string{"first ends", "alone", "alone ends", "next"}
			for i := range want {
				if len(order) != len(want) || order[i] != want[i] {
					t.Fatalf("got %v, want %v", order, want)
				}
			}
		})
	})
	t.Run("IN-14 gives up when the others do not end in time, and opens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			g.enter(nil)
			begun := time.Now()
			if _, ok := g.enterAlone(nil, time.Minute); ok {
				t.Fatal("let in beside another")
			}
			if waited := time.Since(begun); waited != time.Minute {
				t.Errorf("waited %v, want 1m", waited)
			}
			if !g.enter(nil) {
				t.Error("the gate is still closed")
			}
		})
	})
	t.Run("IN-14 the gate opens after the limit, however long the one inside stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			leave, _ := g.enterAlone(nil, time.Minute)
			begun := time.Now()
			g.enter(nil)
			if waited := time.Since(begun); waited != time.Minute {
				t.Errorf("waited %v, want 1m", waited)
			}
			leave()
			if _, ok := g.enterAlone(nil, time.Second); ok {
				t.Error("let in beside another")
			}
		})
	})
	t.Run("IN-14 shutdown frees those who wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			stop := make(chan struct{})
			leave, _ := g.enterAlone(nil, time.Hour)
			let := true
			go func() { let = g.enter(stop) }()
			synctest.Wait()
			close(stop)
			synctest.Wait()
			if let {
				t.Error("let in although the gate is closed")
			}
			leave()
		})
	})
}
