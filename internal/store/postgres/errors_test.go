package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthouse/posthouse/internal/model"
)

func TestOnce(t *testing.T) {
	for lines, want := range map[string]string{
		"":                       "",
		"a: refused\na: refused": "a: refused",
		"resolving: lookup x: no host\nlookup x: no host": "resolving: lookup x: no host",
		"a: refused\nb: refused\na: refused":              "a: refused; b: refused",
	} {
		if got := once(lines); got != want {
			t.Errorf("%q became %q, want %q", lines, got, want)
		}
	}
}

// An outcome is written again while the server is in a bad state, and given up
// where it is at fault itself.
func TestCodesOfErrors(t *testing.T) {
	for want, states := range map[model.Code][]string{
		model.CodeUnavailable: {
			"08000", "08006", "08P01", "28000", "28P01", "3D000", "40001", "40P01", "40003", "42501", "42P05", "25006", "25P02", "25P03", "25P04",
			"26000", "0A000", "53000", "53100", "53200", "53300", "53400", "55000", "55006", "55P03", "57000", "57014", "57P01", "57P02", "57P03", "57P04",
			"57P05", "58000", "58030", "58P01", "72000", "F0000", "XX000", "XX001", "XX002",
		},
		model.CodeRejected: {"22001", "22021", "23502", "23505", "23514", "54000"},
		model.CodeSchema:   {"42P01", "42703"},
		model.CodeInternal: {"21000", "42601", "42804", "P0001", ""},
	} {
		for _, state := range states {
			if got := codeOf(&pgconn.PgError{Code: state}); got != want {
				t.Errorf("AC-9 SQLSTATE %q is %q, want %q", state, got, want)
			}
		}
	}
}
