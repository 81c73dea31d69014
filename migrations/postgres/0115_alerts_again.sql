-- An event is told of once for each amount as well: a cap that is raised and reached again, or
-- does something else when it is, is told of anew, and so is a quota of other units. What a
-- share of denials is held against moves with time, and is no part of it.
-- +goose Up

ALTER TABLE alerts DROP CONSTRAINT alerts_alert_tenant_threshold_period_key;
CREATE UNIQUE INDEX alerts_once ON alerts (alert, tenant, threshold, period, (CASE WHEN kind = 'denials' THEN 0 ELSE of END), currency, action);
