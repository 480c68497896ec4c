import type { Page, Paged, StoredDeadLetter, StoredMessage } from '../../driver.js'
import { type Message, notesOf } from './message.js'
import type { QueueStore } from './store.js'

/** A page of messages in one state: ready by priority and arrival, delayed by due instant, claimed by age of claim. */
export function listMessages(store: QueueStore, state: StoredMessage['state'], page: Page): Paged<StoredMessage> {
  switch (state) {
    case 'ready':
      return paged(readyAfter(store, page), page, readyCursor, (message) => asStored(store, message))
    case 'delayed':
      return paged(delayedAfter(store, page), page, placeCursor, (message) => asStored(store, message))
    case 'claimed':
      return paged(claimedAfter(store, page), page, claimCursor, (message) => asStored(store, message))
  }
}

/** A page of dead letters in the order in which they died. */
export function listDeadLetters(store: QueueStore, page: Page): Paged<StoredDeadLetter> {
  const messages = store.dead.after(numbers(page)[0] ?? -1, page.limit + 1)
  return paged(messages, page, deathCursor, (message) => asDeadLetter(store, message))
}

/** Makes a page of up to one message more than asked for, which only tells whether there is a next page. */
function paged<T>(
  messages: Message[],
  page: Page,
  cursorOf: (message: Message) => string,
  show: (message: Message) => T,
): Paged<T> {
  const more = messages.length > page.limit
  if (more) messages.pop()
  const items = messages.map(show)
  const last = messages.at(-1)
  return more && last !== undefined ? { items, next: cursorOf(last) } : { items }
}

function readyAfter(store: QueueStore, page: Page): Message[] {
  const [priority, arrivedAt, arrival] = numbers(page)
  if (priority === undefined || arrivedAt === undefined || arrival === undefined) {
    return store.ready.after(undefined, page.limit + 1)
  }
  return store.ready.after({ priority, arrivedAt, arrival }, page.limit + 1)
}

function delayedAfter(store: QueueStore, page: Page): Message[] {
  const [arrivedAt, arrival] = numbers(page)
  const place = arrivedAt === undefined || arrival === undefined ? undefined : { arrivedAt, arrival }
  return store.delayed.after(place, page.limit + 1)
}

function claimedAfter(store: QueueStore, page: Page): Message[] {
  return store.claims.after(numbers(page)[0] ?? -1, page.limit + 1)
}

function numbers(page: Page): number[] {
  return page.after === undefined ? [] : page.after.split(':').map(Number)
}

function readyCursor(message: Message): string {
  return `${message.priority}:${placeCursor(message)}`
}

function placeCursor(message: Message): string {
  return `${message.arrivedAt}:${message.arrival}`
}

function claimCursor(message: Message): string {
  return `${message.fence}`
}

function deathCursor(message: Message): string {
  return `${notesOf(message).deathNumber}`
}

function asStored(store: QueueStore, message: Message): StoredMessage {
  const { clock } = store
  const { state, notes } = message
  const claimed = state === 'claimed'
  return {
    id: message.id,
    state: claimed || state === 'delayed' ? state : 'ready',
    bytes: message.bytes,
    attempt: message.attempt,
    deliveryCount: message.deliveryCount,
    priority: message.priority,
    ...keyAndHeaders(message),
    enqueuedAt: clock.shown(message.enqueuedAt),
    ...(state === 'delayed' && { dueAt: clock.shown(message.arrivedAt) }),
    ...(claimed && { leaseExpiresAt: clock.shown(message.instant), consumer: message.consumer }),
    ...(claimed && notes?.progress !== undefined && { progress: notes.progress }),
  }
}

function asDeadLetter(store: QueueStore, message: Message): StoredDeadLetter {
  const { reason, attempts, deadAt, errors } = notesOf(message)
  return {
    id: message.id,
    bytes: message.bytes,
    reason,
    attempts,
    deliveryCount: message.deliveryCount,
    priority: message.priority,
    ...keyAndHeaders(message),
    enqueuedAt: store.clock.shown(message.enqueuedAt),
    deadAt: store.clock.shown(deadAt),
    errors: errors.slice(),
  }
}

function keyAndHeaders(message: Message): { key?: string; headers?: Readonly<Record<string, string>> } {
  const { key, headers } = message
  return { ...(key !== undefined && { key }), ...(headers !== undefined && { headers }) }
}
