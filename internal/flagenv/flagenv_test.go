package flagenv

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type words []string

func (w *words) String() string     { return "" }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func TestParse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(file, []byte("\xef\xbb\xbfaddr file:1\nlevel file\nwait 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		env         map[string]string
		args        []string
		addr, level string
		wait        time.Duration
	}{
		"defaults":                              {nil, nil, "default:1", "info", time.Second},
		"a variable":                            {map[string]string{"T_ADDR": "env:1"}, nil, "env:1", "info", time.Second},
		"an empty one is the empty value":       {map[string]string{"T_ADDR": ""}, nil, "", "info", time.Second},
		"the command line wins over it":         {map[string]string{"T_ADDR": ""}, []string{"--addr", "line:1"}, "line:1", "info", time.Second},
		"an empty duration is not set":          {map[string]string{"T_WAIT": ""}, nil, "default:1", "info", time.Second},
		"a file that begins with a mark":        {nil, []string{"--config", file}, "file:1", "file", 3 * time.Second},
		"an empty variable wins over the file":  {map[string]string{"T_ADDR": ""}, []string{"--config", file}, "", "file", 3 * time.Second},
		"the file's name from the environment":  {map[string]string{"T_CONFIG": file, "T_LEVEL": "env"}, nil, "file:1", "env", 3 * time.Second},
		"an empty name of a file is no file":    {map[string]string{"T_CONFIG": ""}, nil, "default:1", "info", time.Second},
		"an empty duration leaves the file its": {map[string]string{"T_WAIT": ""}, []string{"--config", file}, "file:1", "file", 3 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			f := flag.NewFlagSet("t", flag.ContinueOnError)
			addr, level, wait := f.String("addr", "default:1", ""), f.String("level", "info", ""), f.Duration("wait", time.Second, "")
			f.Var(new(words), "word", "")
			_ = f.String("config", "", "")
			if err := Parse(f, c.args, "T"); err != nil || *addr != c.addr || *level != c.level || *wait != c.wait {
				t.Errorf("addr %q, level %q, wait %v, %v; want %q, %q, %v", *addr, *level, *wait, err, c.addr, c.level, c.wait)
			}
		})
	}
}
