"""`specadapt bench rules`: rules of others for trees and stops, on what a drafter really says."""
