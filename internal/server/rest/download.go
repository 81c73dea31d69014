package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// formats are the file formats: their content types, and the ends of their names.
var formats = map[string]struct {
	format quotav1.ExportBreakdownRequest_Format
	media  string
}{
	"csv":     {quotav1.ExportBreakdownRequest_FORMAT_CSV, "text/csv; charset=utf-8"},
	"jsonl":   {quotav1.ExportBreakdownRequest_FORMAT_JSONL, "application/jsonl"},
	"parquet": {quotav1.ExportBreakdownRequest_FORMAT_PARQUET, "application/vnd.apache.parquet"},
}

// download serves ExportBreakdown as a file, by the parameters of ListBreakdownRequest and format. The number of rows
// and the digest follow as trailers. A file that broke off has no trailers, and its connection is cut.
func download(serve serveFunc, export exportFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := metadata.NewIncomingContext(r.Context(), metadata.Pairs())
		if h := r.Header.Get("Authorization"); h != "" {
			ctx = metadata.NewIncomingContext(r.Context(), metadata.Pairs("authorization", h))
		}
		var req *quotav1.ExportBreakdownRequest
		sent := false
		err := serve(ctx, quotav1.UsageService_ExportBreakdown_FullMethodName, func() (_ proto.Message, err error) {
			req, err = downloadRequest(r)
			return req, err
		}, func(ctx context.Context) error {
			control := http.NewResponseController(w)
			// Only single writes have a deadline: the first row of many may take its time.
			if err := control.SetWriteDeadline(time.Time{}); err != nil {
				return err
			}
			return export(ctx, req, func(m *quotav1.ExportBreakdownResponse) error {
				if len(m.Data) > 0 || m.End != nil {
					if !sent {
						sent = true
						w.Header().Set("Content-Type", formats[formatOf(req)].media)
						w.Header().Set("Content-Disposition", `attachment; filename="usage.`+formatOf(req)+`"`)
						w.Header().Set("Trailer", "Quota-Rows, Quota-Digest, Quota-Height, Quota-Complete-Through-Ms")
					}
					_ = control.SetWriteDeadline(time.Now().Add(rpc.Stall)) // it could be set before
					if _, err := w.Write(m.Data); err != nil {
						return err
					}
					_ = control.SetWriteDeadline(time.Time{})
				}
				if m.End != nil {
					w.Header().Set("Quota-Rows", strconv.FormatInt(m.End.Rows, 10))
					w.Header().Set("Quota-Digest", "sha-256="+m.End.Digest)
					w.Header().Set("Quota-Height", strconv.FormatInt(m.End.Origin.Height, 10))
					w.Header().Set("Quota-Complete-Through-Ms", strconv.FormatInt(m.End.Origin.CompleteThroughMs, 10))
				}
				return nil
			})
		})
		switch {
		case err == nil:
		case sent:
			panic(http.ErrAbortHandler) // the reader must not take what there is for the whole
		default:
			refuse(w, runtime.HTTPStatusFromCode(status.Code(err)), err)
		}
	}
}

// serveFunc is the gate: see authn.Gate.Serve.
type serveFunc func(ctx context.Context, method string, read func() (proto.Message, error), do func(context.Context) error) error

// exportFunc makes a file, and hands it to send in messages.
type exportFunc func(ctx context.Context, req *quotav1.ExportBreakdownRequest, send func(*quotav1.ExportBreakdownResponse) error) error

func formatOf(req *quotav1.ExportBreakdownRequest) string {
	for name, f := range formats {
		if f.format == req.Format {
			return name
		}
	}
	return ""
}

// downloadRequest reads the parameters.
func downloadRequest(r *http.Request) (*quotav1.ExportBreakdownRequest, error) {
	req := &quotav1.ExportBreakdownRequest{Breakdown: &quotav1.ListBreakdownRequest{}}
	query := r.URL.Query()
	f, ok := formats[query.Get("format")]
	if query.Has("format") && (!ok || len(query["format"]) > 1) {
		return nil, fmt.Errorf("%w: format is %q; it must be csv, jsonl or parquet", fault.ErrInvalid, query["format"])
	}
	if req.Format = f.format; !ok {
		req.Format = quotav1.ExportBreakdownRequest_FORMAT_CSV
	}
	query.Del("format")
	url := *r.URL
	url.RawQuery = query.Encode()
	plain := r.Clone(r.Context())
	plain.URL = &url
	if err := checkQuery(context.WithValue(r.Context(), queryKey{}, plain), req.Breakdown.ProtoReflect().Descriptor()); err != nil {
		return nil, err
	}
	parser := &queryParser{}
	if err := parser.Parse(req.Breakdown, query, utilities.NewDoubleArray(nil)); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	return req, nil
}
