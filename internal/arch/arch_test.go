package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/f4ee788f/quota"

// listed is what `go list -deps -export -json` says of a package.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Export     string
	GoFiles    []string
	Imports    []string
}

// list returns pkg and everything it imports, tests left out, pkg last.
func list(t *testing.T, pkg string, flags ...string) []listed {
	t.Helper()
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Export,GoFiles,Imports"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, module+"/"+pkg)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", pkg, err, &stderr)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

// why is a chain of imports from the last package to the one at path.
func why(all []listed, path string) string {
	chain := []string{path}
	for {
		i := slices.IndexFunc(all, func(l listed) bool { return slices.Contains(l.Imports, chain[0]) })
		if i < 0 || slices.Contains(chain, all[i].ImportPath) {
			return strings.Join(chain, " -> ")
		}
		chain = slices.Insert(chain, 0, all[i].ImportPath)
	}
}

func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/")
	})
}

// rule says what a package may bring along, itself and everything it imports included.
type rule struct {
	pkg    string
	allow  []string // the only packages outside the standard library; nil for any
	forbid []string
}

// outside is what the core decides without: protocols, stores, flags.
var outside = []string{
	"google.golang.org/grpc", "google.golang.org/protobuf", "net/http", "net/rpc", "database/sql", "flag",
	"github.com/redis/go-redis", "github.com/jackc/pgx", "modernc.org/sqlite", "github.com/spf13/cobra",
	"github.com/peterbourgon/ff", "github.com/prometheus/client_golang",
}

// stores is what no gateway links.
var stores = []string{
	"github.com/redis/go-redis", "github.com/jackc/pgx", "modernc.org/sqlite", "database/sql", "flag",
	"github.com/spf13/cobra", "github.com/grpc-ecosystem/grpc-gateway", "github.com/testcontainers/testcontainers-go",
	module + "/internal/server", module + "/internal/policy", module + "/internal/ledger/pgledger",
	module + "/internal/ledger/sqliteledger", module + "/internal/lease/redisstore", module + "/migrations",
}

var rules = []rule{
	{pkg: "internal/core/calendar", allow: []string{module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/limit", allow: []string{module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/likely", allow: []string{module + "/internal/core/likely"}, forbid: outside},
	{pkg: "internal/core/lease", allow: []string{module + "/internal/core/lease", module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/ledger", allow: []string{module + "/internal/core/ledger", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/billing", allow: []string{module + "/internal/billing", module + "/internal/core/limit", module + "/internal/core/calendar", module + "/internal/sheet"}, forbid: outside},
	// The rooms of an agent: arrows go one way, to the agent that ties them.
	{pkg: "internal/core/table", allow: []string{module + "/internal/core/table"}, forbid: outside},
	{pkg: "internal/core/match", allow: []string{module + "/internal/core/match", module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/reqcache", allow: []string{module + "/internal/core/reqcache", module + "/internal/core/bucket", module + "/internal/core/lease", module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/wheel", allow: []string{module + "/internal/core/wheel"}, forbid: outside},
	{pkg: "internal/core/renewal", forbid: append([]string{module + "/internal/core/session", module + "/internal/core/wire"}, outside...)},
	{pkg: "internal/core/bucket", allow: []string{module + "/internal/core/bucket", module + "/internal/core/lease", module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/core/usage", allow: []string{module + "/internal/core/usage", module + "/internal/core/bucket", module + "/internal/core/ledger", module + "/internal/core/lease", module + "/internal/core/limit", module + "/internal/core/calendar"}, forbid: outside},
	{pkg: "internal/policy/terms", forbid: []string{module + "/internal/policy/policystore", module + "/internal/policy/strict", "go.yaml.in/yaml", "database/sql"}},
	{pkg: "internal/policy", forbid: []string{module + "/internal/policy/policystore", module + "/internal/policy/sqlstore", "database/sql"}},
	{pkg: "internal/core/agent", forbid: outside},
	{pkg: "internal/core/recovery", forbid: append([]string{module + "/pkg", module + "/internal/core/session"}, stores...)},
	{pkg: "internal/core/session", forbid: append([]string{module + "/pkg"}, stores...)},
	{pkg: "pkg/client", forbid: stores},
	{pkg: "pkg/client/httpquota", forbid: stores},
	{pkg: "pkg/client/httpretry", allow: []string{module + "/pkg/client/httpretry"}},
	{pkg: "pkg/client/grpcquota", forbid: stores},
	{pkg: "pkg/client/agentclient", forbid: stores},
}

// broken returns what pkg imports against its rule.
func (r rule) broken(all []listed) (faults []string) {
	for _, l := range all {
		switch {
		case under(l.ImportPath, r.forbid):
			faults = append(faults, fmt.Sprintf("%s must not import %s: %s", r.pkg, l.ImportPath, why(all, l.ImportPath)))
		case r.allow != nil && !l.Standard && !under(l.ImportPath, r.allow):
			faults = append(faults, fmt.Sprintf("%s may import the standard library and %q only: %s", r.pkg, r.allow, why(all, l.ImportPath)))
		}
	}
	return faults
}

func TestDependencyDirections(t *testing.T) {
	for _, r := range rules {
		t.Run(r.pkg, func(t *testing.T) {
			for _, fault := range r.broken(list(t, r.pkg)) {
				t.Error(fault)
			}
		})
	}
	// The check must be able to fail: the wire knows gRPC.
	r := rule{pkg: "internal/core/wire", allow: []string{module + "/internal/core/wire"}, forbid: outside}
	if len(r.broken(list(t, r.pkg))) == 0 {
		t.Error("a package that imports gRPC passes the check of the core")
	}
}

// rooms says which rooms of the server a room may import: arrows point one way. Tests may import more. What is not here may import none.
var rooms = map[string][]string{
	"rpc":        {},
	"authn":      {},
	"view":       {},
	"switches":   {},
	"judge":      {},
	"ready":      {},
	"upkeep":     {"rpc"},
	"granted":    {"judge"},
	"intake":     {"authn", "granted", "judge", "rpc"},
	"leasing":    {"authn", "rpc", "view"},
	"statements": {"authn", "rpc"},
	"alerts":     {"authn", "rpc", "view"},
	"usage":      {"rpc"},
	"books":      {"authn", "rpc"},
	"admin":      {"authn", "rpc", "switches", "view"},
	"rest":       {"authn", "rpc"},
}

// strangers returns the rooms that pkg imports and may not: those below internal/server, wiring itself included.
func strangers(pkg string, imports, may []string) (faults []string) {
	const server = module + "/internal/server"
	for _, path := range imports {
		if path != server && !strings.HasPrefix(path, server+"/") {
			continue
		}
		if !slices.Contains(may, strings.TrimPrefix(path, server+"/")) {
			faults = append(faults, fmt.Sprintf("internal/server/%s must not import %s", pkg, strings.TrimPrefix(path, module+"/")))
		}
	}
	return faults
}

// Each room of the server knows those below it alone; the wiring (internal/server) and boot know all.
func TestRoomsOfTheServer(t *testing.T) {
	for _, pkg := range packagesOf(t) {
		room, ok := strings.CutPrefix(pkg, "internal/server/")
		if !ok || room == "boot" || room == "servertest" {
			continue
		}
		may, ok := rooms[room]
		if !ok {
			t.Errorf("internal/server/%s: say in rooms what it may import", room)
		}
		all := list(t, pkg)
		for _, fault := range strangers(room, all[len(all)-1].Imports, may) {
			t.Error(fault)
		}
	}
	if len(strangers("x", []string{module + "/internal/server", module + "/internal/server/y", "fmt"}, []string{"z"})) != 2 {
		t.Error("a room that imports others passes the check")
	}
}

// The core takes the time as an argument.
func TestCoreReadsNoClock(t *testing.T) {
	for _, pkg := range []string{"internal/core/limit", "internal/core/lease", "internal/core/bucket", "internal/core/wheel", "internal/core/renewal", "internal/core/usage", "internal/core/reqcache", "internal/core/table", "internal/core/match", "internal/core/likely", "internal/billing"} {
		for _, use := range uses(t, pkg, "time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer") {
			t.Errorf("%s: the core has no clock", use)
		}
	}
	if len(uses(t, "internal/arch/testdata/clock", "time", "Now")) != 1 {
		t.Error("a package that reads the clock passes the check")
	}
}

// The product's errors become gRPC codes in internal/core/wire alone. A door speaks another
// protocol, whose errors are not ours; the relay of loadtest/chaos breaks answers on purpose. What is left to a server is what gRPC itself
// would say: there is no such method, or something broke that nobody may be told.
func TestErrorsAreMappedOnce(t *testing.T) {
	mayMap := []string{"internal/core/wire", "internal/doors", "proto", "loadtest/chaos/proxy"}
	for _, pkg := range packagesOf(t) {
		if under(pkg, mayMap) {
			continue
		}
		for _, use := range given(t, pkg,
			"Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
			"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unavailable", "DataLoss", "Unauthenticated",
		) {
			t.Errorf("%s: map errors in internal/core/wire", use)
		}
	}
	if len(given(t, "internal/arch/testdata/codes", "NotFound")) != 1 {
		t.Error("a package that makes gRPC errors passes the check")
	}
}

// given returns where pkg makes a gRPC error of one of the codes.
func given(t *testing.T, pkg string, codes ...string) []string {
	t.Helper()
	made := uses(t, pkg, "google.golang.org/grpc/status", "Error", "Errorf", "New", "Newf")
	coded := uses(t, pkg, "google.golang.org/grpc/codes", codes...)
	line := func(use string) string { return use[:strings.LastIndex(use, ": ")] }
	return slices.DeleteFunc(made, func(m string) bool {
		return !slices.ContainsFunc(coded, func(c string) bool { return line(c) == line(m) })
	})
}

// packagesOf returns the directories of the module's packages, relative to its root.
func packagesOf(t *testing.T) (dirs []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		dirs = append(dirs, strings.TrimPrefix(strings.TrimPrefix(path, module), "/"))
	}
	return dirs
}

// uses returns where pkg's files, its tests left out, use one of the names of an import.
func uses(t *testing.T, pkg, path string, names ...string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", pkg, err)
	}
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		local := ""
		for _, imp := range file.Imports {
			if imp.Path.Value == `"`+path+`"` {
				local = path[strings.LastIndexByte(path, '/')+1:]
				if imp.Name != nil {
					local = imp.Name.Name
				}
			}
		}
		if local == "" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
				at := fset.Position(sel.Pos())
				found = append(found, fmt.Sprintf("%s/%s:%d: %s.%s", pkg, filepath.Base(at.Filename), at.Line, local, sel.Sel.Name))
			}
			return true
		})
	}
	return found
}

// What the SDK exports is its own and the standard library's: a user of it is not
// bound to our versions of anything.
func TestClientExportsItsOwnTypesOnly(t *testing.T) {
	for _, pkg := range []string{"pkg/client", "pkg/client/httpquota", "pkg/client/httpretry", "pkg/client/agentclient"} {
		for _, fault := range foreign(t, pkg) {
			t.Error(fault)
		}
	}
	if len(foreign(t, "internal/arch/testdata/foreign")) != 4 {
		t.Error("a package that exports others' types passes the check")
	}
}

// foreign returns where the exported names of pkg mention a type that belongs neither
// to pkg nor to the standard library.
func foreign(t *testing.T, pkg string) (faults []string) {
	t.Helper()
	all := list(t, pkg, "-export")
	self := all[len(all)-1]
	exports, standard := map[string]string{}, map[string]bool{self.ImportPath: true, module + "/pkg/client": true}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
		if l.Standard {
			standard[l.ImportPath] = true
		}
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range self.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(self.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	checked, err := conf.Check(self.ImportPath, fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{own: checked, standard: standard, seen: map[types.Type]bool{}}
	for _, name := range checked.Scope().Names() {
		obj := checked.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		w.at = name
		w.visit(obj.Type())
		named, ok := obj.Type().(*types.Named)
		if _, isType := obj.(*types.TypeName); !isType || !ok {
			continue
		}
		methods := types.NewMethodSet(types.NewPointer(named))
		for i := range methods.Len() {
			if m := methods.At(i).Obj(); m.Exported() {
				w.at = name + "." + m.Name()
				w.visit(m.Type())
			}
		}
	}
	return w.faults
}

// walk visits the types that a user of the package can see.
type walk struct {
	own      *types.Package
	standard map[string]bool
	seen     map[types.Type]bool
	at       string
	faults   []string
}

func (w *walk) visit(typ types.Type) {
	if alias, ok := typ.(*types.Alias); ok {
		typ = types.Unalias(alias)
	}
	if named, ok := typ.(*types.Named); ok {
		for arg := range named.TypeArgs().Types() {
			w.visit(arg)
		}
		if pkg := named.Obj().Pkg(); pkg != nil && pkg != w.own {
			if !w.standard[pkg.Path()] {
				w.faults = append(w.faults, fmt.Sprintf("%s.%s shows %s", w.own.Name(), w.at, named))
			}
			return // what a foreign type shows is its own business
		}
	}
	if w.seen[typ] {
		return
	}
	w.seen[typ] = true
	switch u := typ.Underlying().(type) {
	case *types.Pointer:
		w.visit(u.Elem())
	case *types.Slice:
		w.visit(u.Elem())
	case *types.Array:
		w.visit(u.Elem())
	case *types.Chan:
		w.visit(u.Elem())
	case *types.Map:
		w.visit(u.Key())
		w.visit(u.Elem())
	case *types.Signature:
		for v := range u.Params().Variables() {
			w.visit(v.Type())
		}
		for v := range u.Results().Variables() {
			w.visit(v.Type())
		}
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				w.visit(f.Type())
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			if m.Exported() {
				w.visit(m.Type())
			}
		}
	}
}
