package quotactl

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) creditCommand() *cobra.Command {
	return group("credit", "Give tenants money in advance, void it, and list what is left", c.creditGiveCommand(), c.creditVoidCommand(), c.creditListCommand())
}

func (c *cli) creditGiveCommand() *cobra.Command {
	req := &quotav1.GiveCreditRequest{}
	var expires string
	cmd := &cobra.Command{
		Use:   "give TENANT AMOUNT",
		Short: "Give a tenant a credit, from now on",
		Long: `give adds a credit for the tenant's statements. Of several, the one with the lowest
priority number is used first, then the one that expires first, then the oldest. With --id
the command can be run again after it was cut off, and gives once.`,
		Example: "  quotactl credit give acme '50.00 USD' --id welcome-acme --expires 2099-01-01 --rollover '10.00 USD'",
		Args:    exactly("TENANT", "AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parseWhen(expires, c.now(), time.UTC)
			if err != nil {
				return err
			}
			req.Tenant, req.Amount, req.ExpiresMs = args[0], args[1], millis(at)
			if req.Id == "" {
				req.Id = strings.ToLower(rand.Text()[:16])
			}
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				credit, err := client.GiveCredit(ctx, req)
				if err != nil {
					return err
				}
				return c.Tell(credit.GetCredit(), "credit %s: tenant %s has %s\n", credit.Credit.Id, credit.Credit.Tenant, credit.Credit.Left)
			})
		},
	}
	cmd.Flags().StringVar(&req.Id, "id", "", "the credit's `ID`, by which it is given once; a new one if not given")
	cmd.Flags().Int64Var(&req.Priority, "priority", 0, "credits of a lower `NUMBER` are used first")
	cmd.Flags().StringVar(&expires, "expires", "", "the `TIME` when it lapses: 2026-12-01 (its midnight, UTC) or 2026-12-01T00:00:00+01:00; never if not given")
	cmd.Flags().StringVar(&req.Rollover, "rollover", "", "the most that is carried over to the next period: an `AMOUNT` such as '10.00 USD'; all if not given")
	cmd.Flags().StringVar(&req.Note, "note", "", "a `TEXT` that says what it is for")
	return cmd
}

func (c *cli) creditVoidCommand() *cobra.Command {
	req := &quotav1.VoidCreditRequest{}
	cmd := &cobra.Command{
		Use:   "void ID --reason REASON",
		Short: "End a credit: what is left of it lapses",
		Long: `void ends a credit: from now on it pays for no period that ends later. A period that has
ended and is closed after this still uses it.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Reason == "" {
				return misuse("why? Give --reason REASON")
			}
			req.Id = args[0]
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				credit, err := client.VoidCredit(ctx, req)
				if err != nil {
					return err
				}
				return c.Tell(credit.GetCredit(), "credit %s is void since %s; the %s that are left pay only for periods that ended before\n", credit.Credit.Id, render.Stamp(credit.Credit.VoidedMs), credit.Credit.Left)
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`TEXT` that says why, for those who look later; needed")
	return cmd
}

func (c *cli) creditListCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List a tenant's credits, and what its last statement left of them",
		Args:  exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				resp, err := client.ListCredits(ctx, &quotav1.ListCreditsRequest{Tenant: args[0]})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"ID", "AMOUNT", "LEFT", "PRIORITY", "GIVEN", "EXPIRES", "ROLLOVER", "VOIDED", "NOTE"}, Numbers: map[int]bool{1: true, 2: true, 3: true, 6: true}}
				items := []map[string]any{}
				for _, r := range resp.Credits {
					t.Add(r.Id, r.Amount, r.Left, strconv.FormatInt(r.Priority, 10), render.Stamp(r.GivenMs), render.Dash(render.Stamp(r.ExpiresMs)), render.Dash(r.Rollover), render.Dash(render.Stamp(r.VoidedMs)), r.Note)
					items = append(items, map[string]any{"id": r.Id, "amount": r.Amount, "left": r.Left, "priority": r.Priority, "given": render.Stamp(r.GivenMs), "by": r.GivenBy,
						"expires": render.Stamp(r.ExpiresMs), "rollover": r.Rollover, "voided": render.Stamp(r.VoidedMs), "why": r.VoidReason, "note": r.Note, "carried_from": r.CarriedFrom})
				}
				return c.Write(f, t, items)
			})
		},
	}
	f.Table(cmd)
	return cmd
}
