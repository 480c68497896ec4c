/** What the server says of itself. */

/** The lines of INFO by their names. */
export type Info = ReadonlyMap<string, string>

export function infoOf(text: string): Info {
  const lines = text.split('\r\n').filter((line) => line.includes(':'))
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

export function numberIn(info: Info, name: string): number {
  const value = Number(info.get(name))
  if (!Number.isFinite(value)) throw new Error(`INFO has no number ${name}`)
  return value
}

/** Processor time of the one thread that carries out commands, since the start, in microseconds. */
export function cpuUsOf(info: Info): number {
  return (numberIn(info, 'used_cpu_user_main_thread') + numberIn(info, 'used_cpu_sys_main_thread')) * 1e6
}
