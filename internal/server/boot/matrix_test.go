package boot_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// rolesPage has the table that TestWhoMayCallWhat holds: it is made of what servers answer.
const rolesPage = "../../../docs/roles.md"

var update = flag.Bool("update", false, "write docs/roles.md anew, of what servers answer")

// roles are who calls: nobody has no key, open calls a server that lets everybody in.
var roles = []string{"nobody", "viewer", "operator", "admin", "agent", "backfill", "open"}

// whoMay lists the roles that a server answered "yes". That nobody without a key may call it, and everybody may on an
// open server, is the same for all calls, and said above the table.
func whoMay(t *testing.T, m protoreflect.MethodDescriptor, cells []string) string {
	t.Helper()
	var may []string
	for i, role := range roles {
		want := map[string]string{"nobody": "key", "open": "yes"}[role]
		switch {
		case want == "" && cells[i] == "yes":
			may = append(may, role)
		case want == "" && cells[i] != "no", want != "" && cells[i] != want:
			t.Errorf("%s: %s is answered %q", m.FullName(), role, cells[i])
		}
	}
	return strings.Join(may, ", ")
}

// route is how REST reaches a method; body is the field that is the request's body, * for the whole message, and empty
// where it has none.
type route struct{ method, path, body string }

// routes reads proto/rest.yaml, by the methods' full names.
func routes(t *testing.T) map[string]route {
	t.Helper()
	text, err := os.ReadFile("../../../proto/rest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		HTTP struct{ Rules []map[string]string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]route)
	for _, rule := range file.HTTP.Rules {
		for _, verb := range []string{"get", "post", "put", "delete"} {
			if path, ok := rule[verb]; ok {
				all[rule["selector"]] = route{strings.ToUpper(verb), path, rule["body"]}
			}
		}
	}
	// A file is served beside the services.
	all["quota.v1.UsageService.ExportBreakdown"] = route{"GET", "/v1/usage/export", ""}
	return all
}

// served are the methods of all services that a server has; a quota-agent has the other one.
func served() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("quota.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if s.FullName() == "quota.v1.DecisionService" {
				continue
			}
			for j := range s.Methods().Len() {
				all = append(all, s.Methods().Get(j))
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
	return all
}

// message is a request about a tenant that breaks no bound; of none where that is empty, and then of a stream's one
// that breaks some, so that it is answered at once.
func message(m protoreflect.MethodDescriptor, tenant string) *dynamicpb.Message {
	req := dynamicpb.NewMessage(m.Input())
	if tenant != "" {
		fill(req, tenant)
		return req
	}
	if after := m.Input().Fields().ByName("after"); m.IsStreamingServer() && after != nil {
		req.Set(after, protoreflect.ValueOfInt64(-1))
	}
	return req
}

func fill(m protoreflect.Message, tenant string) {
	texts := map[protoreflect.Name]string{"tenant": tenant, "id": tenant, "plan": "free", "period": "2026-01", "reason": "test", "idempotency_key": "test-" + tenant, "limit": "requests", "meter": "requests"}
	numbers := map[protoreflect.Name]int64{"at_ms": 1, "slot_ms": 1767225600000, "policy_version": 1, "admitted": 1}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Kind() == protoreflect.StringKind && !f.IsList() && texts[f.Name()] != "":
			if m.Descriptor().Name() == "ListBreakdownRequest" && f.Name() != "tenant" {
				continue
			}
			m.Set(f, protoreflect.ValueOfString(texts[f.Name()]))
		case f.Kind() == protoreflect.Int64Kind && !f.IsList() && numbers[f.Name()] != 0:
			m.Set(f, protoreflect.ValueOfInt64(numbers[f.Name()]))
		case f.Name() == "values" && f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("rate").MapKey(), protoreflect.ValueOfString("1/second"))
		case f.Name() == "breakdown":
			fill(m.Mutable(f).Message(), tenant)
		case f.Name() == "rows" && f.IsList():
			list := m.Mutable(f).List()
			fill(list.AppendMutable().Message(), tenant)
		}
	}
}

// answer is how a call was let in: "yes", "no", or "key" where one is asked for.
func answer(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, req proto.Message) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if m.IsStreamingServer() && strings.HasPrefix(string(m.Name()), "Watch") {
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second) // one that is let in may have nothing to say
		defer cancel()
	}
	method := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer()}, method)
	if err == nil {
		if err = stream.SendMsg(req); err == nil {
			_ = stream.CloseSend()
			err = stream.RecvMsg(dynamicpb.NewMessage(m.Output()))
		}
	}
	switch status.Code(err) {
	case codes.Unauthenticated:
		return "key"
	case codes.PermissionDenied:
		return "no"
	case codes.Unimplemented:
		return "not served"
	}
	return "yes"
}

// at is the request's path with its parameters, of what the message says; a part of the path that it does not say is 1.
func (r route) at(m protoreflect.Message) string {
	fields, inPath := m.Descriptor().Fields(), make(map[protoreflect.Name]bool)
	path := r.path
	for {
		before, rest, ok := strings.Cut(path, "{")
		if !ok {
			break
		}
		param, after, _ := strings.Cut(rest, "}")
		name, long := strings.CutSuffix(param, "=**")
		inPath[protoreflect.Name(name)] = true
		value := "1"
		if f := fields.ByName(protoreflect.Name(name)); m.Has(f) && (long || !strings.Contains(m.Get(f).String(), "/")) {
			value = m.Get(f).String()
		}
		path = before + value + after
	}
	if strings.HasSuffix(path, "/reports/1/1/1") {
		path = strings.Replace(path, "/reports/1/", "/reports/gw-1/", 1)
	}
	if r.method != "GET" {
		return path
	}
	if f := fields.ByName("breakdown"); f != nil { // a file is asked for by the fields of what is in it
		m = m.Get(f).Message()
	}
	query := make(url.Values)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !inPath[f.Name()] {
			query.Set(string(f.Name()), v.String())
		}
		return true
	})
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// rest is the same of a route: how a call of it with the message was let in.
func (n *node) rest(r route, key string, req *dynamicpb.Message) string {
	n.t.Helper()
	body, whole := "", proto.Message(req)
	if r.body != "" {
		if r.body != "*" {
			whole = req.Get(req.Descriptor().Fields().ByName(protoreflect.Name(r.body))).Message().Interface()
		}
		text, err := protojson.Marshal(whole)
		if err != nil {
			n.t.Fatal(err)
		}
		body = string(text)
	}
	code, said := n.call(r.method, r.at(req), key, body)
	var refusal struct{ Message string }
	switch code {
	case 401:
		return "key"
	case 403:
		return "no"
	case 405, 501:
		return "not served"
	case 404:
		// That there is no such thing is said in a service's words; that there is no such path in the router's own.
		if json.Unmarshal([]byte(said), &refusal) != nil || refusal.Message == http.StatusText(code) {
			return "not served"
		}
	}
	return "yes"
}

// Who may call what, over gRPC and REST: each method and route of the protocol with each role, and with keys that are
// for some tenants. The table in the docs is what servers answer: a method that is not in it, or is answered otherwise,
// fails.
func TestWhoMayCallWhat(t *testing.T) {
	closed := scopedNode(t)
	open := start(t, embedded(t, scopedText))
	keys := map[string]string{"nobody": "", "open": ""}
	scoped := map[string]string{}
	for _, role := range []string{"viewer", "operator", "admin", "agent", "backfill"} {
		req := &quotav1.CreateKeyRequest{Role: role}
		if role == "agent" {
			req.Agent = "gw-1"
		}
		keys[role] = closed.with(req).key
		if role != "admin" {
			req.Tenants = []string{"org/web"}
			scoped[role] = closed.with(req).key
		}
	}
	conns, narrow := map[string]*grpc.ClientConn{}, map[string]*grpc.ClientConn{}
	for _, role := range roles {
		n := closed
		if role == "open" {
			n = open
		}
		conns[role] = n.dial(keys[role])
	}
	for role, key := range scoped {
		narrow[role] = closed.dial(key)
	}
	byREST := routes(t)
	calls := make(map[[2]string][]string) // by who may, and what a key for some tenants may
	for _, m := range served() {
		r, has := byREST[string(m.FullName())]
		cells := make([]string, 0, len(roles))
		for _, role := range roles {
			req := message(m, "")
			cell := answer(t.Context(), conns[role], m, req)
			if has {
				n := closed
				if role == "open" {
					n = open
				}
				if over := n.rest(r, keys[role], req); over != cell {
					t.Errorf("%s calls %s: gRPC answers %q, and %s %s %q", role, m.FullName(), cell, r.method, r.path, over)
				}
			}
			cells = append(cells, cell)
		}
		for role, conn := range narrow {
			for _, tenant := range []string{"org/web", "other"} {
				if !has {
					break
				}
				req := message(m, tenant)
				cell := answer(t.Context(), conn, m, req)
				if over := closed.rest(r, scoped[role], req); over != cell {
					t.Errorf("%s for org/web calls %s of %s: gRPC answers %q, and %s %s %q", role, m.FullName(), tenant, cell, r.method, r.at(req), over)
				}
				if cell == "yes" && cells[slices.Index(roles, role)] != "yes" {
					t.Errorf("%s for org/web may call %s of %s, and one for all tenants may not", role, m.FullName(), tenant)
				}
			}
		}
		scope := "no"
		for _, role := range []string{"viewer", "operator", "agent", "backfill"} {
			if cells[slices.Index(roles, role)] != "yes" {
				continue
			}
			own, other, none := answer(t.Context(), narrow[role], m, message(m, "org/web")), answer(t.Context(), narrow[role], m, message(m, "other")), answer(t.Context(), narrow[role], m, dynamicpb.NewMessage(m.Input()))
			switch {
			case own == "yes" && other == "no":
				scope = "one of its own"
			case own == "yes" && role == "agent":
				scope = "each by itself"
			case own == "yes" && none == "yes":
				scope = "yes"
			case own == "no":
			default:
				text, _ := protojson.Marshal(message(m, "other"))
				t.Errorf("%s of a %s's key for some tenants: its own %q, another's %q, none %q: %s", m.FullName(), role, own, other, none, text)
			}
			break
		}
		may := [2]string{whoMay(t, m, cells), scope}
		calls[may] = append(calls[may], fmt.Sprintf("`%s.%s`", m.Parent().Name(), m.Name()))
		delete(byREST, string(m.FullName()))
	}
	for selector := range byREST {
		t.Errorf("proto/rest.yaml names %s, which no service has", selector)
	}
	var table strings.Builder
	table.WriteString("| who may | a key for some tenants | calls |\n| --- | --- | --- |\n")
	for _, may := range slices.SortedFunc(maps.Keys(calls), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", may[0], may[1], strings.Join(calls[may], ", "))
	}
	const begin, end = "<!-- begin: made by go test ./internal/server/boot -run TestWhoMayCallWhat -update -->\n", "<!-- end -->\n"
	page, err := os.ReadFile(rolesPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	said, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table to compare", rolesPage)
	}
	if *update {
		if err := os.WriteFile(rolesPage, []byte(head+begin+table.String()+end+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, got := strings.Split(said, "\n"), strings.Split(table.String(), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("servers answer, and the docs do not say:\n%s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the docs say, and servers do not answer:\n%s", line)
		}
	}
}
