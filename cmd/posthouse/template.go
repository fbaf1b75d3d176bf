package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/posthouse/posthouse/internal/config"
	"github.com/posthouse/posthouse/internal/template"
)

type templateCmd struct {
	Lint    templateLintCmd    `cmd:"" help:"Tell all that is wrong with a folder of templates, and what should be better."`
	Preview templatePreviewCmd `cmd:"" help:"Show what a template looks like, in each kind that it has."`
}

// templateFlags say which folder; no running instance is needed.
type templateFlags struct {
	configFile
	Dir  string `help:"The folder of templates. Without it the one of the configuration, and where there is none ./templates." type:"path"`
	JSON bool   `help:"Print JSON."`
}

// folder is the folder of templates. What else is wrong with the configuration is
// not looked at.
func (f templateFlags) folder() (string, error) {
	dir := f.Dir
	if dir == "" {
		dir = "templates"
		if cfg, found, _ := config.Load(config.ParseParams{File: f.Config}); len(found) == 0 && cfg.Templates != "" {
			dir = cfg.Templates
		}
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", fmt.Errorf("there is no folder %s; --dir names the one of the templates", word(dir))
	}
	return dir, nil
}

type templateLintCmd struct{ templateFlags }

func (c *templateLintCmd) Run() error {
	dir, err := c.folder()
	if err != nil {
		return err
	}
	found := template.Lint(os.DirFS(dir))
	wrong := 0
	var lines problems
	for _, p := range found {
		if !p.Warning {
			wrong++
		}
		lines = append(lines, p.String())
	}
	if c.JSON {
		if err := printJSON(map[string]any{"problems": orEmpty(found)}); err != nil {
			return err
		}
		if wrong > 0 {
			return fmt.Errorf("%s has %s", word(dir), count(wrong, "problem"))
		}
		return nil
	}
	if wrong > 0 {
		return lines
	}
	for _, line := range lines {
		fmt.Println(line)
	}
	set, _ := template.Load(os.DirFS(dir))
	fmt.Printf("%s is fine: %s, %s.\n", dir, count(len(set.Codes()), "template"), count(len(set.Versions()), "version"))
	return nil
}

type templatePreviewCmd struct {
	templateFlags
	Code      string `arg:"" help:"The template's code, which is the name of its folder."`
	Locale    string `help:"Such as zh-CN. Without it the template's default."`
	Kind      string `help:"Only this kind: in_app, email or text."`
	Variables string `placeholder:"FILE" help:"A file with the variables as a JSON object; - is standard input. Without it samples from the template's schema."`
}

func (c *templatePreviewCmd) Run() error {
	dir, err := c.folder()
	if err != nil {
		return err
	}
	variables, err := c.variables()
	if err != nil {
		return err
	}
	shown, err := template.Preview(os.DirFS(dir), c.Code, c.Locale, variables)
	if broken, ok := errors.AsType[*template.LoadError](err); ok {
		var lines problems
		for _, p := range broken.Problems {
			lines = append(lines, p.String())
		}
		return lines
	}
	if err != nil {
		return err
	}
	if c.Kind != "" {
		kinds := shown.Kinds
		shown.Kinds = nil
		for _, k := range kinds {
			if k.Kind == c.Kind {
				shown.Kinds = append(shown.Kinds, k)
			}
		}
		if shown.Kinds == nil {
			return fmt.Errorf("%s has no kind %s", plain(c.Code, 64), plain(c.Kind, 20))
		}
	}
	if c.JSON {
		return printJSON(shown)
	}
	printPreview(shown)
	return nil
}

func (c *templatePreviewCmd) variables() (json.RawMessage, error) {
	switch c.Variables {
	case "":
		return nil, nil
	case "-":
		return io.ReadAll(io.LimitReader(os.Stdin, maxFile))
	}
	return os.ReadFile(c.Variables)
}

func printPreview(p template.Previewed) {
	for _, k := range p.Kinds {
		locale := k.Locale
		if locale == "" {
			locale = "default"
		}
		fmt.Printf("─── %s · %s\n", k.Kind, locale)
		for _, part := range [][2]string{{"subject", k.Subject}, {"text", k.Text}, {"html", k.HTML}} {
			if part[1] != "" {
				fmt.Printf("%s:\n%s\n\n", part[0], part[1])
			}
		}
	}
}
