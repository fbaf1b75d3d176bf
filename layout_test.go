// Package posthouse holds no code: it is where the layout of the module is
// tested.
package posthouse

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/posthouse/posthouse/"

type room struct {
	pkg  string
	may  []string
	why  string
	libs []string // libraries that only the packages that name them may import
}

// layout says, for each package, which packages of this module it may import,
// and why. Imports run one way: the command knows the app, the app knows every
// room, domain rooms know the model and what lies below them, and adapters know
// the model alone. A prefix ending in /... stands for everything below it.
var layout = []room{
	{"internal/model", nil, "it is the vocabulary: it knows nobody and does no I/O", nil},
	{"internal/crashpoint", nil, "it is a marker", nil},
	{"internal/expression", nil, "it is a language", []string{"github.com/expr-lang/expr", "github.com/cockroachdb/apd"}},
	{"internal/template", []string{"internal/model"}, "it is pure: it reads the folder that it is handed, and knows no store",
		[]string{"github.com/santhosh-tekuri/jsonschema", "github.com/goccy/go-yaml"}},
	{"internal/template/samples", nil, "it is a folder of files", nil},
	{"internal/telemetry", nil, "everybody may use it, so it uses nobody", nil},
	{"internal/config", []string{"internal/model"}, "it reads a file; what follows from it is the app's business", []string{"github.com/goccy/go-yaml"}},
	{"internal/config/gen", []string{"internal/config"}, "it writes the reference", nil},
	{"internal/store", nil, "it is a signpost", nil},
	{"internal/store/migrate", []string{"internal/model"}, "an adapter's tool", nil},
	{"internal/store/columns", []string{"internal/model"}, "what the adapters share", nil},
	{"internal/store/storetest", []string{"internal/model"}, "the contract of an adapter", nil},
	{"internal/store/sqlite/...", adapter, "an adapter knows the model, never a domain", []string{"modernc.org/sqlite"}},
	{"internal/store/postgres/...", adapter, "an adapter knows the model, never a domain", []string{"github.com/jackc/pgx"}},
	{"internal/store/mysql/...", adapter, "an adapter knows the model, never a domain", []string{"github.com/go-sql-driver/mysql"}},
	{"internal/workqueue", []string{"internal/model", "internal/crashpoint"}, "the queue knows no store, no HTTP and no source of messages", nil},
	{"internal/ingest/verify", nil, "signatures are pure", nil},
	{"internal/ingest", []string{"internal/model", "internal/crashpoint", "internal/ingest/verify", "internal/expression"}, "the door knows no store", nil},
	{"internal/notify", []string{"internal/model", "internal/crashpoint", "internal/channel", "internal/expression", "internal/template"}, "accepting knows no store, no HTTP and no sender", nil},
	{"internal/delivery", []string{"internal/model", "internal/crashpoint", "internal/channel", "internal/template", "internal/workqueue"}, "carrying out knows no store, no HTTP and no kind of sender", nil},
	{"internal/lock", nil, "it knows Redis and nobody here", []string{"github.com/redis/rueidis"}},
	{"internal/httptarget", []string{"internal/model"}, "an adapter knows the model, never a domain", nil},
	{"internal/channel", []string{"internal/model"}, "it is the contract of a sender", nil},
	{"internal/channel/scrub", nil, "it reads texts, and knows nobody", nil},
	{"internal/channel/channeltest", []string{"internal/channel", "internal/model"}, "the contract of a sender", nil},
	{"internal/channel/email", []string{"internal/channel", "internal/channel/scrub", "internal/channel/channeltest", "internal/model"},
		"a sender knows the contract, never a domain", []string{"github.com/wneessen/go-mail"}},
	{"internal/channel/gateway", []string{"internal/channel", "internal/channel/scrub", "internal/channel/channeltest", "internal/expression", "internal/model"},
		"a sender knows the contract, and no domain", nil},
	{"internal/channel/mailbox", []string{"internal/channel", "internal/channel/email", "internal/model"}, "it shows what the e-mail sender would have sent", nil},
	{"inbox", []string{"internal/model", "internal/ingest", "internal/ingest/verify", "internal/expression", "internal/workqueue"},
		"whoever imports it must not link a database driver, nor the binary's rooms", nil},
	{"inbox/internal/guard", []string{"inbox", "internal/model"}, "it is handed a store, and links no driver", nil},
	{"inbox/sqlite", []string{"inbox/internal/guard", "internal/store/sqlite"}, "whoever imports it must link this one driver", nil},
	{"inbox/postgres", []string{"inbox/internal/guard", "internal/store/postgres"}, "whoever imports it must link this one driver", nil},
	{"inbox/mysql", []string{"inbox/internal/guard", "internal/store/mysql"}, "whoever imports it must link this one driver", nil},
	{"internal/httpapi", []string{"internal/model", "internal/ingest", "internal/notify", "internal/delivery", "internal/channel", "internal/telemetry"}, "it shows what the app hands it", []string{"github.com/danielgtaylor/huma"}},
	{"client", nil, "whoever imports it must link nothing but the standard library", nil},
	{"internal/app", []string{"inbox", "internal/..."}, "it alone knows every room", nil},
	{"cmd/posthouse", []string{"client", "internal/app", "internal/config", "internal/expression", "internal/httpapi", "internal/model", "internal/telemetry", "internal/template"},
		"it turns flags into a configuration, and answers into text", []string{"github.com/alecthomas/kong"}},
	{"internal/testdb", nil, "it is for tests", nil},
	{"test/...", []string{"..."}, "tests of the whole may use all of it", nil},
	{"playground", nil, "it uses posthouse as everybody does: from outside", nil},
	{"bench/...", []string{"..."}, "measurements of the whole may use all of it", nil},
}

var adapter = []string{"internal/model", "internal/crashpoint", "internal/store/migrate", "internal/store/columns"}

func TestImportsRunOneWay(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg = strings.TrimPrefix(pkg, module)
		if pkg+"/" == module {
			continue
		}
		rule := slices.IndexFunc(layout, func(r room) bool { return matches(r.pkg, pkg) })
		if rule < 0 {
			t.Errorf("%s has no place in the layout: add it to the table in layout_test.go, with what it may import", pkg)
			continue
		}
		for imported := range strings.FieldsSeq(imports) {
			if own, ok := strings.CutPrefix(imported, module); ok {
				if !matches(layout[rule].pkg, own) && !slices.ContainsFunc(layout[rule].may, func(p string) bool { return matches(p, own) }) {
					t.Errorf("%s imports %s: %s", pkg, own, layout[rule].why)
				}
				continue
			}
			for _, owner := range layout {
				for _, lib := range owner.libs {
					if strings.HasPrefix(imported, lib) && !slices.Contains(layout[rule].libs, lib) && !matches("test/...", pkg) && !matches("bench/...", pkg) && pkg != "internal/testdb" && pkg != "playground" {
						t.Errorf("%s imports %s: that library belongs to %s", pkg, imported, owner.pkg)
					}
				}
			}
		}
	}
}

// matches says whether the package is the one that the pattern names.
func matches(pattern, pkg string) bool {
	if prefix, all := strings.CutSuffix(pattern, "..."); all {
		return strings.HasPrefix(pkg+"/", prefix)
	}
	return pattern == pkg
}
