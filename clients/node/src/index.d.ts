import type { IncomingMessage, ServerResponse } from 'node:http'

/** What is known of a request, by the policy's names: tenant, user, endpoint, ip, and others; at most 32. */
export type Attributes = Record<string, string>

/** Units by the names that the policy lists as costs: 0 to 1,000,000,000 each. */
export type Costs = Record<string, number>

/** Units of requests, 0 to 1,000,000,000, and of other costs. */
export interface Amount {
  units?: number
  costs?: Costs
}

/** A question: may this request pass? Its units are 1 if absent; 0 of everything takes nothing. */
export interface Request extends Amount {
  attributes: Attributes
}

/** What became of a request. Times are in seconds; 0 or '' where nothing is known. */
export interface Decision {
  allowed: boolean
  /** A word of the table in docs/doors.md: 'limit', 'suspended', 'unknown', … */
  reason: string
  /** The HTTP status that suits it: 200, 429, … */
  status: number
  /** How long a denied request should stay away. */
  retryAfter: number
  /** The limit that denied, or the tightest that allowed. */
  limit: string
  /** Units in each window. */
  quota: number
  window: number
  remaining: number
  /** Until the bucket is full, or its window turns. */
  reset: number
  /** A sentence on a denial. */
  detail: string
  /** What quota and remaining are units of; empty for requests, and for sums of several costs. */
  cost: string
}

export interface Options {
  /** Seconds that a call may take, its retries included: 2. */
  timeout?: number
  /** While the agent is away requests are denied ('closed', the default), or allowed and unbilled ('open'). */
  failureMode?: 'open' | 'closed'
  /** Retries of calls that may be repeated: 2. */
  retries?: number
  /** Connections to the agent at most: 8. Further calls wait for one. */
  connections?: number
  /** Denials that are remembered at most: 4096. */
  held?: number
  /** Seconds for which a denial is believed without asking: 1. Policies change within a second. */
  longestHold?: number
}

export class Client {
  /** address is HOST:PORT or unix:PATH. */
  constructor(address: string, options?: Options)
  /** Units that were let pass while the agent was away; they are in no ledger. */
  readonly unaccounted: number
  /** Decides one request. */
  allow(attributes: Attributes, amount?: Amount): Promise<Decision>
  /** Decides 1 to 1,024 requests in one call, each by itself. */
  decide(requests: Request[]): Promise<Decision[]>
  /** Reserves the most that a request may cost, for 1 to 3,600 seconds (60). */
  reserve(attributes: Attributes, amount?: Amount & { expires?: number }): Promise<Reservation>
  /**
   * Reserves, and runs the block with the reservation. Its end is the reservation's, unless commit or cancel was: one
   * of these that failed is repeated. Without one, it commits what use said, else all that was reserved, or cancels where
   * the block throws.
   */
  withReservation<T>(
    attributes: Attributes,
    amount: Amount & { expires?: number },
    block: (reservation: Reservation) => T | Promise<T>,
  ): Promise<T>
  /** Closes all connections. */
  close(): void
}

export class Reservation {
  private constructor()
  readonly allowed: boolean
  readonly decision: Decision
  /** Any client may commit it; '' where the agent has none, because of the failure mode. */
  readonly id: string
  /** The units of a cost that are reserved. To use more, extend before; where that is denied, stop. */
  reserved(cost?: string): number
  /** Notes what has been used so far, in all. The agent hears of it with the next extend. */
  use(total?: Amount): void
  /** Reserves more, all or nothing. */
  extend(more: Amount): Promise<Decision>
  /** Ends the reservation with what the request cost in all. late: it had expired, and is booked all the same. */
  commit(total?: Amount): Promise<{ late: boolean }>
  /** Ends the reservation: the request cost nothing. */
  cancel(): Promise<void>
  /** Ends the reservation as withReservation does, if it has not ended. */
  end(failed?: boolean): Promise<void>
}

/** What all errors of this package are. */
export class QuotaError extends Error {}

/** The agent refuses the call, and would again: a mistake of the caller, or no such reservation. */
export class Problem extends QuotaError {
  readonly status: number
  readonly title: string
  readonly detail: string
}

/** The agent is away, or its answer did not come in time or cannot be understood. */
export class Unavailable extends QuotaError {}

/** Middleware of Express, Connect and others that call (request, response, next). */
export function middleware<R extends IncomingMessage = IncomingMessage>(
  client: Client,
  options?: { attributes?: (request: R) => Attributes },
): (request: R, response: ServerResponse, next: (error?: unknown) => void) => Promise<void>

/** A hook of Fastify: app.addHook('onRequest', hook(client)). */
export function hook(
  client: Client,
  options?: { attributes?: (request: any) => Attributes },
): (request: any, reply: any) => Promise<unknown>
