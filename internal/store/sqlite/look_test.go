package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthouse/posthouse/internal/model"
)

func TestLookingMakesNothing(t *testing.T) {
	for name, cfg := range map[string]Config{"MustExist": {MustExist: true, Consumer: true}, "ReadOnly": {ReadOnly: true}} {
		t.Run(name+" refuses a missing file by its name, and leaves nothing", func(t *testing.T) {
			dir := t.TempDir()
			cfg.Path = filepath.Join(dir, "typo", "y.db")
			_, err := Open(cfg)
			wantCode(t, err, model.CodeUnavailable)
			if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), cfg.Path) {
				t.Errorf("the error is %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%s was made", left[0].Name())
			}
		})
	}
	t.Run("a folder is no database", func(t *testing.T) {
		_, err := Open(Config{Path: t.TempDir(), ReadOnly: true})
		wantCode(t, err, model.CodeUnavailable)
	})
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a?mode=rwc b.db")
	owner := open(t, Config{Path: path})
	migrated(t, owner)
	m := message(source(t, owner), 3)
	if err := put(owner, m); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"beside whoever writes", "when nobody has it open", "a second time"} {
		if when == "when nobody has it open" {
			if err := owner.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("it is read "+when, func(t *testing.T) {
			s := open(t, Config{Path: path, ReadOnly: true, AllowUnsafe: true})
			if err := s.CheckReady(t.Context()); err != nil {
				t.Error(err)
			}
			if _, _, err := s.Message(t.Context(), m.ID); err != nil {
				t.Error(err)
			}
			wantCode(t, put(s, m), model.CodeInvalid)
			_, err := s.MigrateUp(t.Context())
			wantCode(t, err, model.CodeInvalid)
		})
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("Dear Sir, this is no database. ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{Path: path}, {Path: path, ReadOnly: true}} {
		s := open(t, cfg)
		if err := s.CheckReady(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the error is %v", err)
		}
	}
	t.Run("and so does the second consumer's", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ph.db")
		open(t, Config{Path: path, Consumer: true})
		_, err := Open(Config{Path: path, Consumer: true})
		wantCode(t, err, model.CodeBusy)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the error is %v", err)
		}
	})
}
