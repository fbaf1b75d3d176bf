package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// targetWithin is how long a target may take to have everything.
const targetWithin = 2 * time.Minute

// sender pushes over one connection. It does little besides, since it runs on
// the processors that it measures.
type sender struct {
	conn net.Conn
	read *bufio.Reader
	head []byte
}

func dial(ctx context.Context, push string) (*sender, error) {
	u, err := url.Parse(push)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", u.Path, u.Host, bodySize)
	return &sender{conn: conn, read: bufio.NewReader(conn), head: head}, nil
}

func (s *sender) close() { _ = s.conn.Close() }

// push sends the payload of this number and waits for its 2xx.
func (s *sender) push(number int) error {
	if err := s.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := s.conn.Write(append(slices.Clip(s.head), payload(number)...)); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	response, err := http.ReadResponse(s.read, nil)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	var answer bytes.Buffer
	_, err = io.Copy(&answer, response.Body)
	_ = response.Body.Close()
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("push: answered %s: %s", response.Status, answer.String())
	}
	return nil
}

// pushAll pushes the numbers below n over several connections.
func pushAll(ctx context.Context, url string, n, connections int) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range connections {
		group.Go(func() error {
			s, err := dial(ctx, url)
			if err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			defer s.close()
			for {
				number := int(next.Add(1)) - 1
				if number >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if err := s.push(number); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// waitAtTarget waits until the target has n different pushes.
func waitAtTarget(ctx context.Context, s *server, n int) (arrived, error) {
	ctx, cancel := context.WithTimeout(ctx, targetWithin)
	defer cancel()
	var a arrived
	u, err := url.Parse(s.push)
	if err != nil {
		return a, err
	}
	u.Path, u.RawQuery = "/arrived", fmt.Sprintf("n=%d", n)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return a, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, fmt.Errorf("the target does not have %d pushes: %w", n, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("read what the target says: %w", err)
	}
	return a, nil
}
