/**
 * No cycles among imports that run. Type imports may go round: a delivery names the queue that it came from, and a
 * queue its deliveries, while the code behind them depends in one direction only.
 */
import { type Import, resolveRelative, type SourceFile, type Violation } from './source.js'

/** One violation for each cycle found, at the import that closes it. */
export function checkCycles(files: readonly SourceFile[]): Violation[] {
  const search = new CycleSearch(new Map(files.map((file) => [file.path, file])))
  for (const file of files) search.enter(file)
  return search.found
}

class CycleSearch {
  readonly found: Violation[] = []
  private readonly trail: string[] = []
  private readonly done = new Set<string>()

  constructor(private readonly files: ReadonlyMap<string, SourceFile>) {}

  enter(file: SourceFile): void {
    if (this.done.has(file.path)) return
    this.trail.push(file.path)
    for (const each of file.imports) {
      if (!each.typeOnly && each.specifier.startsWith('.')) this.follow(file, each)
    }
    this.trail.pop()
    this.done.add(file.path)
  }

  private follow(from: SourceFile, via: Import): void {
    const target = this.files.get(resolveRelative(from.path, via.specifier))
    if (target === undefined) return
    const seenAt = this.trail.indexOf(target.path)
    if (seenAt === -1) return this.enter(target)
    const cycle = [...this.trail.slice(seenAt), target.path].join(' -> ')
    this.found.push({ file: from.path, line: via.line, rule: 'cycle', message: cycle })
  }
}
