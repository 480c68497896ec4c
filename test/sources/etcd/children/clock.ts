/** Imported before all else, by who has to use what is exported: the wall clock of the process is wrong by so many milliseconds. */
export const offMs = Number(process.argv[4])
const RealDate = Date

globalThis.Date = class extends RealDate {
  constructor(...args: unknown[]) {
    if (args.length === 0) super(RealDate.now() + offMs)
    else super(...(args as [number]))
  }

  static override now(): number {
    return RealDate.now() + offMs
  }
} as DateConstructor
