/**
 * What is stored once for each queue: the settings that all processes share, and whether it is paused.
 */
import { DEFAULT_SETTINGS, type SharedSettings } from '../../driver.js'
import type { KeyValue } from './client.js'
import type { RankRule } from './rank.js'
import { decode, encode } from './record.js'

interface Stored {
  readonly settings: Partial<SharedSettings>
  readonly paused: boolean
  /** Rises with each change of `ageing`. */
  readonly epoch: number
}

export interface Meta extends RankRule {
  readonly settings: SharedSettings
  /** Those that somebody has named. */
  readonly named: Partial<SharedSettings>
  readonly paused: boolean
  /** The revision that has put it; 0 while it is not stored. */
  readonly mod: number
}

export const NO_META: Meta = metaFrom({ settings: {}, paused: false, epoch: 0 }, 0)

export function decodeMeta(stored: KeyValue | undefined): Meta {
  return stored === undefined ? NO_META : metaFrom(decode<Stored>(stored.value, 'a queue'), stored.mod)
}

/** As it is to be stored; a change of `ageing` begins an epoch. */
export function encodeMeta(meta: Meta): Buffer {
  const stored: Stored = { settings: meta.named, paused: meta.paused, epoch: meta.epoch }
  return encode(stored)
}

/** The queue with these settings named, whoever has named them before. */
export function withSettings(meta: Meta, changes: Partial<SharedSettings>): Meta {
  const named = { ...meta.named, ...changes }
  const settings = { ...DEFAULT_SETTINGS, ...named }
  const same = JSON.stringify(settings.ageing) === JSON.stringify(meta.ageing)
  return { ...meta, named, settings, ageing: settings.ageing, epoch: same ? meta.epoch : meta.epoch + 1 }
}

/** The settings that nobody has named before. */
export function unnamed(meta: Meta, proposed: Partial<SharedSettings>): Partial<SharedSettings> {
  return Object.fromEntries(Object.entries(proposed).filter(([name]) => !(name in meta.named)))
}

function metaFrom({ settings: named, paused, epoch }: Stored, mod: number): Meta {
  const settings = { ...DEFAULT_SETTINGS, ...named }
  return { settings, named, paused, epoch, ageing: settings.ageing, mod }
}
