package config

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what came out into testdata")

// hidden is what every secret of the tests' environment and files contains: it must never be printed.
const hidden = "hunter2"

// testKeys is a key ring that is known to none but the tests.
const testKeys = "k1:" + "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

var testEnvironment = map[string]string{
	"ERP_SECRET":  hidden + "-erp",
	"NEXT_SECRET": "file:/secrets/" + hidden,
	"EMPTY":       "",
	"DB_PASSWORD": hidden + "%2F",
	"DSN":         "postgres://u:" + hidden + "@db/posthouse",
	"BAD_DSN":     "postgres://u:" + hidden + "/%zz@db/posthouse",
	"INJECTION":   hidden + "\"}\nadmin: {listen: 0.0.0.0:1}\n${ERP_SECRET}",
	"BATCH":       "20",
	"NOT_BATCH":   hidden,
	"PORT":        "9100",
	"SECRETS":     "/secrets",
	"USER":        "posthouse",
	"MAIL_SECRET": hidden,
	"SMS_TOKEN":   hidden,
	"CHANNEL":     hidden,
}

var testFiles = map[string]string{
	"/secrets/erp":     hidden + "-file\n",
	"/secrets/windows": hidden + "-file\r\n",
	"/secrets/two":     hidden + "-file\n\n",
	"/secrets/empty":   "\n",
	"/secrets/dsn":     "mysql://u:" + hidden + "@db/posthouse\n",
}

// testParams reads text as posthouse.yaml in the tests' environment. Expressions that hold "syntax!" do not compile.
func testParams(text string) ParseParams {
	return ParseParams{
		Data: []byte(text), File: "posthouse.yaml",
		LookupEnv: func(name string) (string, bool) {
			if name == KeysVariable {
				return testKeys, strings.Contains(text, "channels:") // which need it
			}
			value, set := testEnvironment[name]
			return value, set
		},
		ReadFile: func(path string) ([]byte, error) {
			switch data, found := testFiles[path]; {
			case found:
				return []byte(data), nil
			case path == "/secrets/locked":
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
			case path == "/secrets/broken":
				return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("input/output error")}
			default:
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
		},
		CheckKey: func(key string) error {
			if strings.Contains(key, "syntax!") || key == "nil" {
				return errors.New("1:2: no key: " + key)
			}
			return nil
		},
		CheckValue: testCompiler, CheckPolicy: testCompiler, CheckAnswer: testCompiler, CheckAnswerValue: testCompiler,
		PolicyKinds: testKinds, CheckRequest: testRequest,
		CheckExpression: func(expression string) error {
			if strings.Contains(expression, "syntax!") {
				return errors.New("unexpected token Operator(\"!\") (1:7)\n | " + expression)
			}
			return nil
		},
	}
}

func testKinds(condition string) (kinds []string) {
	for word := range strings.FieldsSeq(condition) {
		if kind, found := strings.CutPrefix(word, "recipient."); found && kind != "id" {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// testRequest takes all in which "syntax!" does not stand.
func testRequest(method, url string, headers map[string]string, body string) (faults []RequestFault) {
	parts := map[string]string{"method": method, "url": url, "body": body}
	for name, value := range headers {
		parts["headers."+name] = value
	}
	for key, part := range parts {
		if strings.Contains(part, "syntax!") {
			faults = append(faults, RequestFault{Key: key, Problem: "does not work", Detail: "1:2: " + part, Mend: "mend it"})
		}
	}
	return faults
}

func testCompiler(expression string) error {
	if strings.Contains(expression, "syntax!") {
		return errors.New("1:7: " + expression)
	}
	return nil
}

// Each file under testdata/problems is a configuration, a line of dashes, and what is said about it, line by line.
// Run with -update to write what is said now, and read the difference.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("only %d golden cases found (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, want, found := strings.Cut(string(data), "\n----------\n")
			if !found {
				t.Fatal("no line of ten dashes")
			}
			text += "\n"
			got := report(Parse(testParams(text)))
			if strings.Contains(got, hidden) {
				t.Errorf("a secret is printed:\n%s", got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(text+"----------\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

// report writes what Parse returned, one line for each problem.
func report(c *Config, problems, warnings []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString("error " + p.String() + "\n")
	}
	for _, p := range warnings {
		b.WriteString("warning " + p.String() + "\n")
	}
	if (c == nil) != (len(problems) > 0) {
		b.WriteString("a Config must come back when there is no problem, and only then\n")
	}
	return b.String()
}
