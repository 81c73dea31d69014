package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// newSecret draws a key's id and secret: the id is in the secret, for people that find one.
func newSecret() (id, secret string) {
	id = "k" + strings.ToLower(rand.Text()[:10])
	return id, "quota_" + id + "_" + rand.Text() + rand.Text()
}

// CreateKey makes a key; its secret leaves the server once.
func (s *Service) CreateKey(ctx context.Context, req *quotav1.CreateKeyRequest) (*quotav1.CreateKeyResponse, error) {
	by := authn.PrincipalOf(ctx)
	if by.Open && !s.keys.InsecurelyOpen() && req.Role != policystore.RoleAdmin {
		return nil, fmt.Errorf("%w: the first key must be an admin's: it closes this server, which is open until then, and with a key of the role %s nobody could make another",
			fault.ErrInvalid, req.Role)
	}
	id, secret := newSecret()
	k := policystore.Key{
		ID: id, Role: req.Role, Agent: req.Agent, Note: req.Note, Hash: sha256.Sum256([]byte(secret)),
		Scope: policystore.Scope{Tenants: req.Tenants, Subtree: req.Subtree, Limits: req.Limits},
	}
	if req.ExpiresMs != 0 {
		k.Expires = time.UnixMilli(req.ExpiresMs)
	}
	k, err := s.store.CreateKey(ctx, by.Name, k)
	if err != nil {
		return nil, err
	}
	s.changed(ctx)
	return &quotav1.CreateKeyResponse{Key: keyProto(k), Secret: secret}, nil
}

// RotateKey makes a key's successor; the old one ends after the overlap.
func (s *Service) RotateKey(ctx context.Context, req *quotav1.RotateKeyRequest) (*quotav1.RotateKeyResponse, error) {
	id, secret := newSecret()
	k, err := s.store.RotateKey(ctx, authn.PrincipalOf(ctx).Name, req.Id, policystore.Key{ID: id, Hash: sha256.Sum256([]byte(secret))}, time.Duration(req.OverlapMs)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	s.changed(ctx)
	return &quotav1.RotateKeyResponse{Key: keyProto(k), Secret: secret}, nil
}

// RevokeKey ends a key: here at once, on other servers at their next look.
func (s *Service) RevokeKey(ctx context.Context, req *quotav1.RevokeKeyRequest) (*quotav1.RevokeKeyResponse, error) {
	k, err := s.store.RevokeKey(ctx, authn.PrincipalOf(ctx).Name, req.Id)
	if err != nil {
		return nil, err
	}
	s.changed(ctx)
	return &quotav1.RevokeKeyResponse{Key: keyProto(k)}, nil
}

// ListKeys pages by id, without secrets. It includes keys that are no longer good.
func (s *Service) ListKeys(ctx context.Context, req *quotav1.ListKeysRequest) (*quotav1.ListKeysResponse, error) {
	n := rpc.Page(req.PageSize)
	keys, err := s.store.Keys(ctx, req.PageToken, n, false)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListKeysResponse{}
	for _, k := range keys {
		resp.Keys = append(resp.Keys, keyProto(k))
	}
	if len(keys) == n {
		resp.NextPageToken = keys[n-1].ID
	}
	return resp, nil
}

func keyProto(k policystore.Key) *quotav1.Key {
	return &quotav1.Key{
		Id: k.ID, Role: k.Role, Agent: k.Agent, Note: k.Note, Tenants: k.Tenants, Subtree: k.Subtree, Limits: k.Limits,
		CreatedMs: rpc.Millis(k.Created), RevokedMs: rpc.Millis(k.Revoked), ExpiresMs: rpc.Millis(k.Expires), UsedMs: rpc.Millis(k.Used), Successor: k.Successor,
	}
}
