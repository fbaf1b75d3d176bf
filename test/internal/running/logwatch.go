package running

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// LogLine is what every line of the server's log has.
type LogLine struct {
	Time  time.Time `json:"time"`
	Level string    `json:"level"`
	Text  string    `json:"msg"`
}

// LogLines reads what the server logged between two moments. A line that is no
// log line (a runtime's panic, say) is an error.
func LogLines(path string, from, to time.Time) ([]LogLine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var lines []LogLine
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), "--- ") {
			continue // the harness's own mark
		}
		var line LogLine
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil || line.Time.IsZero() {
			return nil, fmt.Errorf("not a line of the log: %q", scanner.Text())
		}
		if line.Time.After(from) && line.Time.Before(to) {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}

// Busiest returns the lines of the second in which most were written.
func Busiest(lines []LogLine) (most []LogLine) {
	first := 0
	for i := range lines {
		for lines[i].Time.Sub(lines[first].Time) >= time.Second {
			first++
		}
		if i-first+1 > len(most) {
			most = lines[first : i+1]
		}
	}
	return most
}
