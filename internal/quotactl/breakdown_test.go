package quotactl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/boot"
)

func TestUsageReports(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.FoldInterval = 20 * time.Millisecond })
	if out := e.ok("usage", "report"); !strings.Contains(out, "no usage\nat no block: nothing was sealed yet\n") {
		t.Errorf("before anything was sealed:\n%s", out)
	}
	e.ok("tenant", "create", "acme/web", "--plan", "free", "--parent", "acme")
	slot := e.now.Truncate(5 * time.Minute).Unix()
	row := ledger.Row{Slot: slot, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Plan: "paid", Admitted: 1200, Overage: 30, Denied: 7}
	web := ledger.Row{Slot: slot, Tenant: "acme/web", Limit: "requests", Meter: "requests", Version: 1, Plan: "free", Admitted: 34}
	calls := ledger.Row{Slot: slot, Tenant: "acme/web", Limit: "by-endpoint", Meter: "calls", Version: 1, Plan: "free", Attributes: "tenant=acme/web" + ledger.AttributeSep + "endpoint=/a", Admitted: 34}
	other := ledger.Row{Slot: slot, Tenant: "globex", Limit: "requests", Meter: "requests", Version: 1, Admitted: 5}
	e.settle(row, web, calls, other)
	for range 6000 {
		if strings.Contains(e.ok("usage", "report"), "at block 1, ") {
			break
		}
		time.Sleep(10 * time.Millisecond) // until the next fold
	}
	hash := regexp.MustCompile(`[0-9a-f]{64}`)
	for words, want := range map[string]string{
		"report --by tenant,meter": `TENANT    METER     ADMITTED  OVERAGE  DENIED
acme      requests      1200       30       7
acme/web  calls           34        0       0
acme/web  requests        34        0       0
globex    requests         5        0       0
at block 1, HASH
complete through TIME
`,
		"report --tenant acme --subtree --by tenant,plan --meter requests --peak": `TENANT    PLAN  ADMITTED  OVERAGE  DENIED  PEAK  PEAK/S
acme      paid      1200       30       7  1200     4.0
acme/web  free        34        0       0    34     0.1
at block 1, HASH
complete through TIME
`,
		"report --tenant acme/web --by attribute:endpoint --meter calls": `ENDPOINT  ADMITTED  OVERAGE  DENIED
/a              34        0       0
at block 1, HASH
complete through TIME
`,
		"report --since-height 1": "TENANT  ADMITTED  OVERAGE  DENIED\nno usage\nof blocks above 1 up to 1, HASH\ncomplete through TIME\n",
		"top -n 2 --meter requests": `TENANT    ADMITTED  OVERAGE  DENIED
acme          1200       30       7
acme/web        34        0       0
at block 1, HASH
complete through TIME
`,
		"report --by  --meter requests -o csv": "admitted,overage,denied\n1239,30,7\n",
	} {
		fields := strings.Split(words, " ") // two blanks: an empty word
		e.want(words, hash.ReplaceAllString(e.ok(append([]string{"usage"}, fields...)...), "HASH"), want)
	}
	day := e.now.UTC().Format(time.DateOnly)
	if out := e.ok("usage", "report", "--every", "day", "-o", "csv"); !strings.Contains(out, "\n"+day+",acme,1200,30,7\n") {
		t.Errorf("by day:\n%s", out)
	}
	var answer struct {
		Rows []struct {
			Tenant   string
			Admitted int64
		}
		Block    int64
		Complete string `json:"complete_through"`
	}
	if out := e.ok("usage", "report", "-o", "json"); json.Unmarshal([]byte(out), &answer) != nil || len(answer.Rows) != 3 || answer.Rows[0].Admitted != 1200 || answer.Block != 1 || answer.Complete == "" {
		t.Errorf("json: %s", out)
	}

	// A file is whole, or not there; the same height gives the same bytes.
	for _, name := range []string{"a.csv", "a.jsonl", "a.parquet"} {
		path := filepath.Join(e.dir, name)
		_, errs, code := e.run("usage", "export", "-o", path, "--every", "slot", "--height", "1")
		if code != 0 || !regexp.MustCompile(`^4 rows, \d+ bytes, digest [0-9a-f]{64}\nat block 1, `).MatchString(errs) {
			t.Errorf("export to %s: exit %d, %s", name, code, errs)
		}
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		e.ok("usage", "export", "-o", path, "--every", "slot", "--height", "1")
		if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
			t.Errorf("%s again: %d bytes, %v, want the same %d", name, len(again), err, len(first))
		}
	}
	type record struct {
		Tenant   string `parquet:"tenant"`
		Admitted int64  `parquet:"admitted"`
	}
	if rows, err := parquet.ReadFile[record](filepath.Join(e.dir, "a.parquet")); err != nil || len(rows) != 4 || rows[0].Tenant != "acme" || rows[0].Admitted != 1200 {
		t.Errorf("the Parquet file has %+v, %v", rows, err)
	}
	if out := e.ok("usage", "export", "-o", "-", "--format", "csv", "--by", "tenant"); out != "tenant,admitted,overage,denied\nacme,1200,30,7\nacme/web,68,0,0\nglobex,5,0,0\n" {
		t.Errorf("to standard output:\n%s", out)
	}
	for words, want := range map[string]string{
		"report --every week": "--every must be", "report --by agent": "it must be tenant, plan", "report --subtree": "goes with --tenant", "report --zone Local": "not a time zone",
		"report --from now --to -1h": "is not before", "report --height 9": "block 9", "top -n 0": "-n must be", "top --most units": "must be admitted, overage or denied",
		"export": "where to?", "export -o a.xml": "--format must be", "export -o " + filepath.Join(e.dir, "none", "a.csv"): "no such file", "report x": "takes no arguments",
		"export -o " + filepath.Join(e.dir, "b.csv") + " --by agent": "it must be tenant, plan",
	} {
		if _, errs, code := e.run(append([]string{"usage"}, strings.Fields(words)...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("usage %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(e.dir, "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "b.csv")); err == nil {
		t.Error("a file of an export that was refused")
	}
}
