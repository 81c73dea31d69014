package wire

import (
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// weighingToProto returns nil for requests.
func weighingToProto(w *limit.Weighing) *quotav1.Weighing {
	if w.Plain() {
		return nil
	}
	out := &quotav1.Weighing{Weights: weightsToProto(w.Weights), By: w.By}
	for _, r := range w.Rows {
		out.Rows = append(out.Rows, &quotav1.WeighingRow{Value: r.Value, Weights: weightsToProto(r.Weights)})
	}
	return out
}

func weightsToProto(weights []limit.Weight) (out []*quotav1.Weight) {
	for _, w := range weights {
		out = append(out, &quotav1.Weight{Cost: w.Cost, Micros: w.Micros})
	}
	return out
}

// weighingFromProto checks every bound. Errors wrap fault.ErrInvalid.
func weighingFromProto(p *quotav1.Weighing) (w limit.Weighing, err error) {
	switch {
	case p == nil:
		return w, nil
	case p.By != "" && !limit.ValidName(p.By):
		return w, invalid("by must be at most %d bytes of [A-Za-z0-9._-]", limit.MaxNameLen)
	case (p.By == "") == (len(p.Weights) == 0):
		return w, invalid("it must have either weights or an attribute to choose rows by")
	case (p.By == "") != (len(p.Rows) == 0):
		return w, invalid("it has %d rows and an attribute of %d bytes; one goes with the other", len(p.Rows), len(p.By))
	case len(p.Rows) > limit.MaxWeightRows:
		return w, invalid("rows has %d elements; at most %d", len(p.Rows), limit.MaxWeightRows)
	}
	if w.Weights, err = weightsFromProto(p.Weights); err != nil {
		return w, err
	}
	w.By = p.By
	seen := make(map[string]bool)
	for _, r := range p.Rows {
		row := limit.WeighingRow{Value: r.GetValue()}
		if row.Value == "" || !limit.ValidValue(row.Value) || seen[row.Value] {
			return w, invalid("a row's value is %s; it must be 1 to %d bytes of UTF-8 without control characters, each once", limit.Quote(row.Value), limit.MaxValueLen)
		}
		seen[row.Value] = true
		if row.Weights, err = weightsFromProto(r.GetWeights()); err != nil {
			return w, fmt.Errorf("row %s: %w", limit.Quote(row.Value), err)
		}
		if len(row.Weights) == 0 {
			return w, invalid("row %s has no weights", limit.Quote(row.Value))
		}
		w.Rows = append(w.Rows, row)
	}
	return w, nil
}

func weightsFromProto(p []*quotav1.Weight) (weights []limit.Weight, err error) {
	if len(p) > 1+limit.MaxCosts {
		return nil, invalid("weights has %d elements; at most %d", len(p), 1+limit.MaxCosts)
	}
	for _, w := range p {
		if err := first(name("a cost", w.GetCost()), ranged(bound{"micros", w.GetMicros(), 0, limit.MaxWeight * limit.Micro})); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(weights, func(o limit.Weight) bool { return o.Cost == w.Cost }) {
			return nil, invalid("cost %s has two weights", limit.Quote(w.Cost))
		}
		weights = append(weights, limit.Weight{Cost: w.Cost, Micros: w.Micros})
	}
	return weights, nil
}

// costNames checks the names of a policy's costs. Errors wrap fault.ErrInvalid.
func costNames(names []string) error {
	if len(names) > limit.MaxCosts {
		return invalid("%d costs; at most %d", len(names), limit.MaxCosts)
	}
	for i, n := range names {
		if err := name("a cost", n); err != nil {
			return err
		}
		if n == limit.Requests || slices.Contains(names[:i], n) {
			return invalid("cost %s is there twice", limit.Quote(n))
		}
	}
	return nil
}

func likelyToProto(all []limit.Likely) (out []*quotav1.Likely) {
	for _, l := range all {
		out = append(out, &quotav1.Likely{Cost: l.Cost, QuantilePpm: l.QuantilePPM, By: l.By, First: l.First})
	}
	return out
}

// likelyFromProto checks what is reserved of a policy's costs. Errors wrap fault.ErrInvalid.
func likelyFromProto(p []*quotav1.Likely, costs []string) (all []limit.Likely, err error) {
	for _, l := range p {
		err := ranged(
			bound{"quantile_ppm", l.GetQuantilePpm(), limit.MinQuantilePPM, limit.MaxQuantilePPM},
			bound{"first", l.GetFirst(), 0, limit.MaxUnits},
		)
		if err != nil {
			return nil, err
		}
		switch {
		case !slices.Contains(costs, l.Cost):
			return nil, invalid("likely names %s, which is no cost", limit.Quote(l.Cost))
		case slices.ContainsFunc(all, func(o limit.Likely) bool { return o.Cost == l.Cost }):
			return nil, invalid("likely names cost %s twice", limit.Quote(l.Cost))
		case l.By != "" && !limit.ValidName(l.By):
			return nil, invalid("by must be at most %d bytes of [A-Za-z0-9._-]", limit.MaxNameLen)
		}
		all = append(all, limit.Likely{Cost: l.Cost, QuantilePPM: l.QuantilePpm, By: l.By, First: l.First})
	}
	return all, nil
}
