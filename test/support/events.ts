import type { SourceEvent } from 'millrace'

/** The events of a source, gathered from now on. */
export function eventsOf(source: {
  events: { subscribe(next: (event: SourceEvent) => void): unknown }
}): SourceEvent[] {
  const events: SourceEvent[] = []
  source.events.subscribe((event) => events.push(event))
  return events
}
