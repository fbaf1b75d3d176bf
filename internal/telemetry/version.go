package telemetry

import (
	"runtime/debug"
	"sync"
)

// version is set at link time:
// -ldflags "-X github.com/posthouse/posthouse/internal/telemetry.version=v1.2.3".
var version string

// Build says which build this binary is.
type Build struct {
	Version   string // "v1.2.3"; "devel" where neither the linker nor the module system knows
	Revision  string // the commit; empty where it was not stamped
	Modified  bool   // there were changes that were not committed
	GoVersion string // "go1.26.8"
}

// ReadBuild returns which build this binary is.
func ReadBuild() Build { return readBuild() }

// Version returns the version of this binary.
func Version() string { return readBuild().Version }

var readBuild = sync.OnceValue(func() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(version, info)
})

func buildOf(linked string, info *debug.BuildInfo) Build {
	b := Build{Version: linked, GoVersion: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
}
