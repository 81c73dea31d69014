// Asks a quota-agent whether requests may pass, and reserves what they may cost. Read client.js first.

export { Client, Reservation } from './client.js'
export { Problem, QuotaError, Unavailable } from './model.js'
export { hook, middleware } from './middleware.js'
